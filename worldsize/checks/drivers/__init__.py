"""What a check runs in the process of the student's function, in TensorFlow or on a rank: no expected value, no judging.

A sandbox lets a submission read these modules, and of the checks no others but `in_rank` and `verdict`. What a driver
gets the function could read, and what it returns the function could have made up: so it gets inputs alone, and hands
back values, which the check judges where no submission runs.
"""
