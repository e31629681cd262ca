"""One module for each framework; each needs the extra of its name.

Arguments that cannot work raise TypeError, or ValueError (RulesError of a rule), where they are given.
"""
