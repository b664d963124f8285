"""The line of one of TensorFlow's long errors that explains it, for a table or a cell that goes on."""

import re

MAX_CHARACTERS = 110


def first_words(error: Exception) -> str:
    """Return the line of a TensorFlow error that explains it, without the tensors and addresses in it.

    The result has at most `MAX_CHARACTERS` characters.
    """
    text = re.sub(r"\{\s.*?\}", "{…}", re.sub(r"\x1b\[\d*m", "", str(error)), flags=re.DOTALL)
    lines = [re.sub(r"\{\{.*?\}\} ?", "", line).strip() for line in text.splitlines() if line.strip()]

    unregistered = [line for line in lines if "No OpKernel was registered" in line]
    words = [*unregistered, *lines, ""][0]
    if "in user code" in words:
        words = lines[-1]
    if words.startswith("Exception encountered when calling"):
        words = f"{words.split()[4].removesuffix('.call().')}: {lines[1]}"

    words = re.split(r" used by | \(<class|\. ", words)[0]
    kind = "" if re.match(r"\w+Error: ", words) else f"{type(error).__name__}: "
    return (kind + words)[:MAX_CHARACTERS]
