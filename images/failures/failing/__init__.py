"""Methods that fail on purpose, one way each, beside one that does not.

They show what honest failure looks like and give the tests real misbehaviour. None of them needs
more than the limits of ``manifests/quickstart-failures.yaml`` and all are bounded by themselves, in
case somebody runs one outside a container.
"""
