"""Code that a check runs in the process of the student's function, in TensorFlow or on a rank: no expected values, no judging.

A submission can read anything in its process and forge anything it reports. So a sandbox shows it these modules, and of the
other checks only `in_rank` and `verdict`; a driver gets inputs alone, and the check judges its results where no submission
runs.
"""
