"""What the labs on PyTorch are given: small models, stages, DataParallel by hand, and observers of a framework's step."""
