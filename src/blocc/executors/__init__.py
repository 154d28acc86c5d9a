"""Who computes: this process, processes of this machine, or a cluster."""
