"""Exercise 7.3: each variable to the server that holds the fewest bytes at that moment."""

import heapq

import numpy as np

from tests.checks.mutants import Answers

answers = Answers("place_variables")


@answers.is_right
def plain(sizes_bytes, servers):
    held, chosen = [0] * servers, []
    for size in sizes_bytes:
        chosen.append(held.index(min(held)))
        held[chosen[-1]] += size
    return chosen


@answers.is_right
def with_a_heap(sizes_bytes, servers):
    heap, chosen = [(0, server) for server in range(servers)], []
    for size in sizes_bytes:
        held, server = heapq.heappop(heap)
        chosen.append(server)
        heapq.heappush(heap, (held + size, server))
    return tuple(chosen)


@answers.is_right
def numpy_and_the_last_of_equals(sizes_bytes, servers):
    held, chosen = np.zeros(servers), np.empty(len(sizes_bytes), int)
    for k, size in enumerate(sizes_bytes):
        chosen[k] = servers - 1 - np.argmin(held[::-1])
        held[chosen[k]] += size
    return list(chosen)


@answers.is_wrong("sizes_bytes was changed in place: the caller still needs it unchanged")
def takes_the_sizes_from_the_list(sizes_bytes, servers):
    held, chosen = {server: 0 for server in range(servers)}, []
    while sizes_bytes:
        lightest = min(held, key=held.get)
        chosen.append(lightest)
        held[lightest] += sizes_bytes.pop(0)
    return chosen


@answers.is_right
def an_array_of_int64(sizes_bytes, servers):
    held, chosen = np.zeros(servers, np.int64), np.zeros(len(sizes_bytes), np.int32)
    for k, size in enumerate(sizes_bytes):
        chosen[k] = held.argmin()
        held[chosen[k]] += size
    return chosen


answers.mistake("round_robin", {"held.index(min(held))": "len(chosen) % servers"},
    "This is round robin: it counts variables, not bytes")
answers.mistake("never_adds_up", {"held[chosen[-1]] += size": ""},
    "All went to one server: add each variable's bytes to its server's load")


@answers.is_wrong("The largest were placed first: TensorFlow asks for one variable at a time")
def sorts_first(sizes_bytes, servers):
    held, chosen = [0] * servers, [0] * len(sizes_bytes)
    for k in sorted(range(len(sizes_bytes)), key=lambda k: -sizes_bytes[k]):
        chosen[k] = held.index(min(held))
        held[chosen[k]] += sizes_bytes[k]
    return chosen


answers.mistake("to_the_fullest", {"min(held)": "max(held)"}, "All went to one server")
answers.mistake("returns_what_they_hold", {"return chosen": "return held"},
    "are these the servers' loads? Return a server number for each variable")
answers.mistake("counts_servers_from_one", {"return chosen": "return [server + 1 for server in chosen]"},
    "The first server is number 0")
answers.mistake("blocks", {"held.index(min(held))": "len(chosen) * servers // len(sizes_bytes)"},
    "The variables were cut into equal blocks: look at their bytes")
answers.mistake("remembers_the_last_alone", {"held[chosen[-1]] += size": "held[chosen[-1]] = size"},
    "the servers held", "has the fewest", "the sum of all its variables' bytes, not those of the last one")
answers.mistake("two_servers_alone", {"[0] * servers": "[0] * min(2, servers)"},
    "3 servers", "Only servers 0 and 1 were used, but there are 3")
answers.mistake("counts_before_bytes", {
    "held, chosen = [0] * servers, []": "counts, held, chosen = [0] * servers, [0] * servers, []",
    "chosen.append(held.index(min(held)))": """
        chosen.append(min(range(servers), key=lambda k: (counts[k], held[k])))
        counts[chosen[-1]] += 1
    """,
}, "The number of variables decided, and their bytes only broke ties")
answers.mistake("forgets_the_first", {"+= size": "+= size if len(chosen) > 1 else 0"},
    "went to server", "has the fewest", "The first variable's bytes were not added to its server's load")
answers.mistake("loads_in_float32", {
    "[0] * servers": "np.zeros(servers, np.float32)",
    "held.index(min(held))": "int(held.argmin())",
}, "sizes [1073741824, 1073741824, 40, 7, 9, 2]", "The loads are float32, which holds 24 bits")
answers.mistake("sorts_the_callers_list", {
    "held, chosen = [0] * servers, []": "sizes_bytes.sort(reverse=True)\nheld, chosen = [0] * servers, []",
}, "sizes_bytes was changed in place")
answers.mistake("goes_to_the_next_when_it_is_fuller_than_the_last", {
    "chosen.append(held.index(min(held)))": """
        last = chosen[-1] if chosen else 0
        chosen.append(last if held[last] <= held[(last + 1) % servers] else (last + 1) % servers)
    """,
}, "has the fewest")


@answers.spoils()
def knows_the_first_case_alone(sizes_bytes, servers):
    return [0, 1, 1, 1, 1] if sizes_bytes[0] == 40 else None


answers.spoil("round_robin_that_leaves_out_the_last_of_many", {"return chosen": "return chosen[:12]"}, of=answers["round_robin"])
