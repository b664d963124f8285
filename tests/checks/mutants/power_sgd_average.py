"""Exercise 14.3: an average of low rank, from two small all-reduces, with error feedback and a warm start."""

import torch

from tests.checks.mutants import Answers
from worldsize.fabric.collectives import all_gather, all_reduce

answers = Answers("power_sgd_average")


def mean(fabric, x):
    return all_reduce(fabric, x.contiguous()) / fabric.world_size


def orthonormal(p):
    return torch.linalg.qr(p).Q


@answers.is_right
def as_its_text_says(fabric, gradient, residual, q):
    m = gradient + residual
    p = orthonormal(mean(fabric, m @ q))
    q = mean(fabric, m.T @ p)
    return p @ q.T, m - p @ q.T, q


@answers.is_right
def with_gram_schmidt(fabric, gradient, residual, q):
    """In place, and kept from 0/0."""
    residual, q = residual + gradient, q.clone()
    p = all_reduce(fabric, residual @ q).div_(fabric.world_size)
    for k in range(p.shape[1]):
        column = p[:, k]
        column /= column.norm().clamp(min=1e-12)
        rest = p[:, k + 1 :]
        rest -= column[:, None] * (column @ rest)
    torch.matmul(residual.T, p, out=q)
    all_reduce(fabric, q).div_(fabric.world_size)
    average = p @ q.T
    residual -= average
    return average, residual, q


@answers.is_right
def with_the_gram_schmidt_of_the_papers_code(fabric, gradient, residual, q):
    """Where M has a lower rank the average comes out too large, by less than M: the residual takes it back."""
    m = gradient + residual
    p = mean(fabric, m @ q)
    for k in range(p.shape[1]):
        column, rest = p[:, k : k + 1], p[:, k + 1 :]
        column /= torch.sqrt(torch.sum(column**2)) + 1e-8
        rest -= torch.sum(column * rest, dim=0) * column
    q = mean(fabric, m.T @ p)
    average = p @ q.T
    return average, m - average, q


@answers.is_right
def with_another_basis(fabric, gradient, residual, q):
    """P from an SVD; q begins orthonormal, as in PyTorch's hook; a star in place of a ring."""
    m, n = gradient + residual, fabric.world_size

    def total(x):
        if fabric.rank:
            fabric.send(x, to=0)
            fabric.recv(x, frm=0)
            return x
        other = torch.empty_like(x)
        for rank in range(1, n):
            fabric.recv(other, frm=rank)
            x += other
        for rank in range(1, n):
            fabric.send(x, to=rank)
        return x

    p = torch.linalg.svd(total(m @ torch.linalg.qr(q).Q), full_matrices=False).U
    q = total((m.T @ p).contiguous()) / n
    average = p @ q.T
    return [average, m.sub_(average), q]


@answers.is_right
def with_the_residual_of_the_paper(fabric, gradient, residual, q):
    """Algorithm 2 takes off what the rank itself has put in."""
    n, m = fabric.world_size, gradient + residual
    p = torch.linalg.qr(all_reduce(fabric, m @ q / n)).Q
    own = m.T @ p
    q = all_reduce(fabric, own / n)
    return p @ q.T, m - p @ own.T, torch.linalg.qr(q).Q


@answers.is_right
def by_a_triangular_solve(fabric, gradient, residual, q):
    """Cholesky QR, which needs P's Gram matrix alone; where that is singular, QR."""
    m, n = gradient + residual, fabric.world_size
    raw = all_reduce(fabric, m @ q)
    factor, failed = torch.linalg.cholesky_ex(raw.T @ raw)
    p = torch.linalg.qr(raw).Q
    if not failed and factor.diagonal().min() > 1e-3 * factor.diagonal().max():
        p = torch.linalg.solve_triangular(factor, raw.T, upper=False).T
    q = all_reduce(fabric, (p.T @ m).contiguous()).T / n
    return p @ q.T, m - p @ q.T, q


answers.mistake("without_error_feedback", {"m = gradient + residual": "m = gradient", "m - p @ q.T": "residual"},
    "the average of step 1", "The residual was not added: M is gradient + residual")
answers.mistake("adds_the_residual_for_p_alone", {"mean(fabric, m.T @ p)": "mean(fabric, gradient.T @ p)"},
    "the average of step 1", "The residual was not added for Q: M is gradient + residual in both")
answers.mistake("adds_the_residual_for_q_alone", {"mean(fabric, m @ q)": "mean(fabric, gradient @ q)"},
    "the average of step 1", "The residual was not added for P: M is gradient + residual in both")
answers.mistake("keeps_a_residual_that_nobody_reads", {"gradient + residual": "gradient"},
    "the average of step 1", "The residual was not added: M is gradient + residual")
answers.mistake("keeps_of_the_last_gradient_alone", {"m - p @ q.T": "gradient - p @ q.T"},
    "the residual of step 1", "The rest of older steps is lost: this is gradient − P Qᵀ")
answers.mistake("drops_what_is_left", {"m - p @ q.T": "torch.zeros_like(m)"},
    "the residual of step 1", "It is zero: whatever P Qᵀ leaves out is lost for ever")
answers.mistake("keeps_an_nth_part_of_m", {"m - p @ q.T": "m / fabric.world_size - p @ q.T"},
    "the residual of step 1", "An n-th part of M was taken")
answers.mistake("keeps_an_nth_part_of_the_gradient", {"m - p @ q.T": "gradient / fabric.world_size - p @ q.T"},
    "the residual of step 1", "An n-th part of the gradient was taken")
answers.mistake("keeps_an_nth_part_of_the_gradient_and_the_residual",
    {"m - p @ q.T": "gradient / fabric.world_size + residual - p @ q.T"},
    "the residual of step 1", "An n-th part of the gradient was taken")
answers.mistake("keeps_everything", {"m - p @ q.T": "m"},
    "the residual of step 1", "It is M: subtract the average")
answers.mistake("keeps_what_it_should_give", {"m - p @ q.T": "p @ q.T - m"},
    "the residual of step 1", "It has the wrong sign")
answers.mistake("starts_cold", {
    "q = mean(fabric, m.T @ p)": "start, q = q, mean(fabric, m.T @ p)",
    "m - p @ q.T, q": "m - p @ q.T, start",
}, "q of step 1", "It is the q that came in: return Q", "warm start")
answers.mistake("starts_anywhere", {
    "m - p @ q.T, q":
        "m - p @ q.T, torch.randn(q.shape, generator=torch.Generator().manual_seed(14), dtype=q.dtype)",
}, "the columns of q of step 1 do not span those of Q")
answers.mistake("returns_its_own_q", {"m - p @ q.T, q": "m - p @ q.T, m.T @ p"},
    "q of step 1", "It is the rank's own Mᵀ P: the mean over the ranks is the q of the next step")
answers.mistake("returns_p", {"m - p @ q.T, q": "m - p @ q.T, p"},
    "expected q of step 1, shape [5, 2]", "a tensor of shape [6, 2]")
answers.mistake("does_not_orthonormalise", {"orthonormal(mean(fabric, m @ q))": "mean(fabric, m @ q)"},
    "the average of step 1", "P's columns are not orthonormal")
answers.mistake("normalises_each_column",
    {"p = orthonormal(mean(fabric, m @ q))": "p = mean(fabric, m @ q)\np = p / p.norm(dim=0).clamp(min=1e-12)"},
    "the average of step 1", "have length 1, but are not orthogonal to each other: their common part counts twice")
answers.mistake("orthonormalises_before_the_mean",
    {"orthonormal(mean(fabric, m @ q))": "mean(fabric, orthonormal(m @ q))"},
    "the average of step 1", "first average M q, then orthonormalise")
answers.mistake("orthonormalises_q_too", {"mean(fabric, m.T @ p)": "orthonormal(mean(fabric, m.T @ p))"},
    "the average of step 1", "Q was made orthonormal too, which loses its lengths")
answers.mistake("forgets_to_divide", {
    "mean(fabric, m @ q)": "all_reduce(fabric, m @ q)",
    "mean(fabric, m.T @ p)": "all_reduce(fabric, m.T @ p)",
}, "the average of step 1", "This is n times the average: divide the sum of Mᵀ P")
answers.mistake("divides_the_columns_too", {
    "orthonormal(mean(fabric, m @ q))": "orthonormal(mean(fabric, m @ q)) / fabric.world_size",
    "mean(fabric, m.T @ p)": "all_reduce(fabric, m.T @ p)",
}, "the average of step 1", "divided by the number of ranks once more")
answers.mistake("adds_to_the_residual_in_place",
    {"residual, q = residual + gradient, q.clone()": "residual += gradient\nq = q * 1"},
    "are right, but rank 0: in step 1 the residual was changed in place", of=with_gram_schmidt)
answers.mistake("adds_to_the_gradient_in_place", {"gradient + residual": "gradient.add_(residual)"},
    "are right, but rank 0: in step 1 the gradient was changed in place")
answers.mistake("writes_its_q_into_the_old_one",
    {"residual, q = residual + gradient, q.clone()": "residual = residual + gradient"},
    "are right, but rank 0: in step 1 q was changed in place", of=with_gram_schmidt)
answers.mistake("adds_up_in_float64", {
    "mean(fabric, m @ q)": "mean(fabric, (m @ q).double()).to(m.dtype)",
    "mean(fabric, m.T @ p)": "mean(fabric, (m.T @ p).double()).to(m.dtype)",
}, "of float32", "average, residual and q are right, but", "Does each number take 8 bytes?", "here float32")
answers.mistake("adds_up_in_bfloat16", {
    "mean(fabric, m.T @ p)": "mean(fabric, (m.T @ p).bfloat16()).to(m.dtype)",
}, "the average of step 1", "Numbers that went through bfloat16 or float16 are off by this much")
# The right numbers; each rank works out both products from the whole mean.
answers.mistake("all_reduces_the_matrix", {
    "m = gradient + residual": "m = gradient + residual\nwhole = mean(fabric, m.clone())",
    "mean(fabric, m @ q)": "whole @ q",
    "mean(fabric, m.T @ p)": "whole.T @ p",
}, "average, residual and q are right, but", "an all-reduce of M itself: nothing is saved")
answers.mistake("all_reduces_the_matrix_too",
    {"m = gradient + residual": "m = gradient + residual\nmean(fabric, m.clone())"},
    "average, residual and q are right, but", "M itself travelled too")


@answers.is_wrong("3 ranks", "average, residual and q are right, but", "Every rank sent its part to every other")
def gathers_all_parts(fabric, gradient, residual, q):
    n, m = fabric.world_size, gradient + residual

    def average_of(own):
        parts = own.new_zeros(n, *own.shape)
        parts[fabric.rank] = own
        return all_gather(fabric, parts.view(-1)).view(n, *own.shape).mean(0)

    p = orthonormal(average_of(m @ q))
    q = average_of(m.T @ p)
    return p @ q.T, m - p @ q.T, q


answers.mistake("averages_p_alone", {"mean(fabric, m.T @ p)": "m.T @ p"},
    "the average of step 1", "The ranks differ: P comes from the mean, but Mᵀ P is the rank's own")
answers.mistake("averages_q_alone", {"mean(fabric, m @ q)": "m @ q"},
    "the average of step 1", "The ranks differ: P comes from the rank's own M q")
answers.mistake("averages_nothing", {"mean(fabric, m @ q)": "m @ q", "mean(fabric, m.T @ p)": "m.T @ p"},
    "the average of step 1", "made of the rank's own M alone")
answers.mistake("averages_what_is_compressed", {
    "mean(fabric, m @ q)": "m @ q",
    "mean(fabric, m.T @ p)": "m.T @ p",
    "p @ q.T, m - p @ q.T, q": "mean(fabric, p @ q.T), m - p @ q.T, q",
}, "the average of step 1", "Each rank compressed its own M, and these were averaged")


@answers.is_wrong("the average of step 1", "This is the best matrix of rank r, by an SVD")
def takes_the_svd_of_the_mean(fabric, gradient, residual, q):
    m, r = gradient + residual, q.shape[1]
    u, s, v = torch.linalg.svd(mean(fabric, m.clone()), full_matrices=False)
    average = (u[:, :r] * s[:r]) @ v[:r]
    return average, m - average, v[:r].T * s[:r]


answers.mistake("takes_the_first_columns", {"m @ q": "m[:, : q.shape[1]]"},
    "the average of step 1", "q was not used: P must come from the mean of M q")
answers.mistake("divides_zero_by_zero", {
    "p = orthonormal(mean(fabric, m @ q))": """
        p = mean(fabric, m @ q)
        for k in range(p.shape[1]):
            for before in range(k):
                p[:, k] -= (p[:, before] @ p[:, k]) * p[:, before]
            p[:, k] /= p[:, k].norm()
    """,
}, "only one row is not zero", "got nan", "Gram-Schmidt leaves a column of zeros", "Dividing it by a length of 0 gives NaN")
# A column that has become next to nothing is made long again, and points where the one before does.
answers.mistake("divides_by_a_tiny_length", {
    "p = orthonormal(mean(fabric, m @ q))": """
        p = mean(fabric, m @ q)
        for k in range(p.shape[1]):
            p[:, k] /= p[:, k].norm() + 1e-8
            p[:, k + 1 :] -= p[:, k : k + 1] * (p[:, k] @ p[:, k + 1 :])
        p = torch.nn.functional.normalize(p, dim=0)
    """,
}, "only one row is not zero", "by a tiny length a direction that counts twice", "or use torch.linalg.qr")
answers.mistake("returns_no_q", {"m - p @ q.T, q": "m - p @ q.T"}, "expected (average, residual, q), got 2 values")
answers.mistake("multiplies_the_wrong_way", {"m @ q": "m.T @ q", "m.T @ p": "m @ p"},
    "shapes cannot be multiplied", "M is [rows, columns], q [columns, r]")
answers.mistake("adds_up_in_float32", {
    "mean(fabric, m @ q)": "mean(fabric, (m @ q).float()).to(m.dtype)",
    "mean(fabric, m.T @ p)": "mean(fabric, (m.T @ p).float()).to(m.dtype)",
}, "average, residual and q are right, but", "0.5 x", "Fewer bytes cannot hold the sums over the ranks", "dtype")


@answers.spoils()
def knows_the_first_case_alone(fabric, gradient, residual, q):
    found = as_its_text_says(fabric, gradient, residual, q)
    return found if len(gradient) == 6 else tuple(map(torch.zeros_like, found))


def sends_the_matrix(fabric, gradient, residual, q):
    m = gradient + residual
    whole = mean(fabric, m.clone())
    p = orthonormal(whole @ q)
    return p @ (p.T @ whole), m - p @ (p.T @ whole), whole.T @ p


answers.spoil("sends_the_matrix_and_starts_cold", {"whole.T @ p": "q"}, of=sends_the_matrix)

answers.mistake("divides_q_by_two", {"q = mean(fabric, m.T @ p)": "q = all_reduce(fabric, m.T @ p) / 2"},
    "3 ranks, 7 × 4", "The sum of Mᵀ P was divided by 2, but there are 3 ranks")
answers.mistake("hands_on_another_q", {"m - p @ q.T, q": "m - p @ q.T, torch.ones_like(q)"},
    "the columns of q of step 1 do not span those of Q", "Hand on the Q of this step")
