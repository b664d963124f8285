"""The course without a checkout: a wheel's copy, laid into a student's folder, renewed, and opened."""
