"""Material for the labs on PyTorch: small models, stages, DataParallel by hand, and observers of a framework's step."""
