"""Code that `make docs` writes. Change what it is made from: the declarations in `../groups/`."""
