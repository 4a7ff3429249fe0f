"""Fast forms of attention: rules that replace a plain form by an equal one."""
