"""Inside a sandbox: the server, a rank, a TensorFlow task, and their channel to the broker."""
