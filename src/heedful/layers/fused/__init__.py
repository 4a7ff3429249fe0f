"""Fast forms of layers: rules that replace a plain form by an equal one."""
