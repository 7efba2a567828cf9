"""The scheduler extender: decides which card a pod gets, and says so in the write that binds it."""

VERSION = "0.1.0"
