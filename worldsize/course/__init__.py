"""The course without a checkout: what a wheel carries of it, laid into a student's folder, renewed, and opened."""
