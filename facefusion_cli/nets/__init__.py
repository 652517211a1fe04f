"""Network architectures as torch modules, one a file. They import torch alone."""
