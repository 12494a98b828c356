"""A module of the user's that counts."""
COUNT = 0


def count():
    global COUNT
    COUNT = COUNT % 9 + 1
    return COUNT
