"""Transport network design: which links to build, when every traveller may still choose the existing network."""
