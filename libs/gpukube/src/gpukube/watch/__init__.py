"""List and watch: informers and their collections."""
