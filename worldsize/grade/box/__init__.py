"""Inside a sandbox: the server, a rank, a task of TensorFlow, and their way to the broker."""
