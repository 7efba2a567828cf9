"""The kubelet protocols, and the stubs made from them by ``services/deviceplugin/stubs.py``."""
