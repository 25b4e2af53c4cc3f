// Nothing: the target's precompiled header is all that is wanted of it.
