"""An API server for tests: pods, nodes, events and ConfigMaps over real HTTP."""
