"""A small lab's source, right in every way, for tests that then break it."""

from pathlib import Path

RING = '''\
# %% [markdown]
# # Rings and "quotes"
#
# A first paragraph.

# %% tags=["parameters"]
ranks = 4

# %% [markdown]
# ## Reduce–scatter, at last!

# %% tags=["exercise:ring"]
# Exercise 6.2: send it "round" the ring
def ring(x):
    """Three lines."""
    given = 1
    ### BEGIN SOLUTION
    secret = x + 1

    total = secret * 2
    ### END SOLUTION
    return total

# %% tags=["check:ring"] points=2
check.ring(ring)

# %%
print("given below the check")

# %% tags=["summary"]
lab.summary()
'''
BEGIN, END = "    ### BEGIN SOLUTION\n", "    ### END SOLUTION\n"
EXERCISE = RING[RING.index('# %% tags=["exercise:ring"]') : RING.index('# %% tags=["check:ring"]')]
CHECK = '# %% tags=["check:ring"] points=2\ncheck.ring(ring)\n'


def course(folder: Path, text: str = RING, name: str = "06_ring.py") -> Path:
    """A course with one source; returns the source's path."""
    source = folder / "solutions" / name
    source.parent.mkdir(exist_ok=True)
    source.write_text(text, encoding="utf-8", newline="\n")
    return source
