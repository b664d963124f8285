"""Cells of a student's own, which go along with the exercise that uses them: what is in them must gain nothing."""

from tests.grade.cheats import ALL, RIGHT, TITLE, cell, edited

HELPER = RIGHT.replace("pass_right", "exchange")
HELPED = TITLE + "def pass_right(fabric, x):\n    return exchange(fabric, x)\n"
STUB = TITLE + "def pass_right(fabric, x):\n    raise NotYet('Exercise 0.1: pass a tensor to the right')\n"


def own(notebook: dict, *sources: str, exercise: str = HELPED) -> None:
    """Cells above the exercise, whose cell is `exercise`."""
    one = cell(notebook, "pass_right")
    one["source"] = exercise
    place = notebook["cells"].index(one)
    notebook["cells"][place:place] = [{"cell_type": "code", "metadata": {}, "source": text} for text in sources]


def honest(points: float, *states: str):
    return edited(points, *states, tampered=False)


@honest(ALL)
def statements_beside_a_helper_are_not_run(notebook):
    own(notebook, f"import os\n{HELPER}\nos._exit(3)\nwhile True: pass", "for k in iter(int, 1): pass", "import os; os._exit(4)")


@honest(ALL)
def own_cells_redefine_the_set_up(notebook):
    own(notebook, "torch = None\nfabric = 3", f"class torch:\n    float32 = 1\n{HELPER}", "from os import path as torch")


@honest(0.0)
def own_cell_has_the_exercise_s_function(notebook):
    own(notebook, f"{RIGHT}\nNotYet = ValueError", exercise=STUB)


@honest(0.0)
def own_cell_stands_for_the_check(notebook):
    own(notebook, "def run_check(*args):\n    return 4\nclass Verdict:\n    points = 100\ncheck = Verdict()\n" + HELPER,
        exercise=TITLE + "def pass_right(fabric, x):\n    return check.points\n")  # fmt: skip


@honest(0.0)
def constant_that_never_ends(notebook):
    own(notebook, f"K = 10**10**10\n{HELPER}", exercise=HELPED.replace("exchange(", "exchange(K and "))


@honest(ALL)
def constant_that_never_ends_and_nobody_uses(notebook):
    own(notebook, f"K = 10**10**10\n{HELPER}\nM = 'a' * 10**12")


@honest(ALL)
def constant_beyond_memory_beside_a_helper(notebook):
    own(notebook, f"M = 'a' * 10**12\n{HELPER}", exercise=HELPED + "    print(M)  # never reached\n")


@honest(0.0)
def class_that_ends_the_process(notebook):
    own(notebook, f"class Exit:\n    import os\n    os._exit(0)\n{HELPER}", exercise=HELPED.replace("exchange(", "Exit.go("))


@honest(ALL)
def a_hundred_thousand_definitions(notebook):
    own(notebook, "\n".join(f"def f{k}(): return f{k + 1}()" for k in range(100_000)), HELPER)


@honest(ALL)
def cells_that_python_can_hardly_read(notebook):
    hard = ["(" * 5000, "-" * 100_000 + "1", "K = 1" + "+1" * 40_000, "K = a" + ".b" * 30_000, "K = '\0'", "K = " + "1" * 9_000]
    hard += ["K = " + "lambda: " * 5_000 + "1", "\n".join(["if 1: pass", *["elif 1: pass"] * 5_000]), "K = '\ud800'"]
    own(notebook, *hard, HELPER, exercise=HELPED + "    print(K)\n")


@honest(ALL)
def helpers_in_a_circle(notebook):
    own(notebook, f"A = [B]\n{HELPER}\nB = [A]\ndef one(): return two()\ndef two(): return one(), A, B")
    cell(notebook, "pass_right")["source"] += "    one()\n"


@honest(0.0)
def helper_reads_what_the_grader_knows(notebook):
    own(notebook, """import sys, gc
def exchange(fabric, x):
    frame = sys._getframe()
    while frame:
        for value in frame.f_locals.values():
            if hasattr(value, 'reference'):
                return value
        frame = frame.f_back
    return [o for o in gc.get_objects() if type(o).__name__ == 'Exercise'][0]
""")


@edited(ALL)
def a_half_that_is_another_exercise(notebook):
    """The lower half would replace the function if it were taken for a half."""
    one = cell(notebook, "pass_right")
    copy = {**one, "id": "pass_right", "source": "def pass_right(fabric, x):\n    return None"}
    notebook["cells"].insert(0, copy)
