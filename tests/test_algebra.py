"Indices: one normal form, true bounds, and every rule of algebra against brute force, below zero too."
import itertools
import numpy as np
from hypothesis import given, settings, strategies as st
from tinylit.graph.algebra import (INDEX, bounds, clamp, coefficient, divmod_form, flatten, form, linear, loop, num,
                                   plain, ranges, replace, scale, size, split_terms, terms, unflatten, within)
from tinylit.graph.dtype import dtypes
from tinylit.graph.node import Node, toposort
from tinylit.graph.op import Op

LOOPS = [loop(0, 4), loop(1, 3), loop(2, 5), loop(3, 1)]
POINTS = [dict(zip(LOOPS, vs)) for vs in itertools.product(*map(range, map(size, LOOPS)))]

meaning = {      # op -> its value where the loop variables have the values `at`
    Op.RANGE:  lambda n, at: at[n],
    Op.LINEAR: lambda n, at: sum(c * value(a, at) for a, c in terms(n)) + n.arg[1],
    Op.IDIV:   lambda n, at: value(n.src[0], at) // n.arg,
    Op.MOD:    lambda n, at: value(n.src[0], at) % n.arg,
    Op.CLAMP:  lambda n, at: min(max(value(n.src[0], at), n.arg[0]), n.arg[1]),
    Op.WITHIN: lambda n, at: value(n.src[0], at) // n.arg[1]}


def value(n: Node, at: dict) -> int: return meaning[n.op](n, at)


def values(n: Node, points=POINTS) -> list: return [value(n, at) for at in points]


def divides(*ns: Node) -> int: return sum(n.op in (Op.IDIV, Op.MOD) for n in toposort(*ns))


def is_normal(f: Node):
    "One form: atoms sorted, none of them a form, none with coefficient 0, every division with a positive divisor."
    for n in toposort(f):
        if n.op is Op.LINEAR:
            assert linear(terms(n), n.arg[1]) is n and 0 not in n.arg[0]
            assert all(a.op is not Op.LINEAR for a in n.src)
        if n.op in (Op.IDIV, Op.MOD): assert n.arg > 1


small = st.integers(-13, 13)
divisors = st.sampled_from([1, 2, 3, 4, 5, 6, 8, 12, 13])


@st.composite
def forms(draw, depth: int = 2) -> Node:
    "A random form of LOOPS, with divisions and clamps among its atoms."
    f = linear([(r, draw(small)) for r in LOOPS], draw(st.integers(-30, 30)))
    if not depth or draw(st.booleans()): return f
    inner = draw(forms(depth - 1))
    lo = draw(small)
    atom = draw(st.sampled_from([*divmod_form(inner, draw(divisors)), clamp(inner, lo, lo + abs(draw(small)))]))
    return linear([(f, 1), (atom, draw(small))])


@given(forms(), forms(), small, small)
def test_sums_and_multiples(f, g, c, d):
    h = linear([(f, c), (g, d)], 7)
    is_normal(h)
    assert values(h) == [c * a + d * b + 7 for a, b in zip(values(f), values(g))]
    assert form(f, g) is form(g, f) and form(form(f, g), c) is form(c, f, g)
    assert scale(form(f, g), c) is form(scale(f, c), scale(g, c)) and scale(f, 0) is num(0)
    assert form(f, scale(f, -1)) is num(0) and scale(f, 1) is f and form(f) is f


@given(forms())
def test_bounds_hold(f):
    lo, hi = bounds(f)
    assert lo <= min(values(f)) and max(values(f)) <= hi


@given(st.lists(small, min_size=4, max_size=4), small, divisors)
def test_bounds_are_tight_where_each_loop_stands_once(cs, c, k):
    f = linear(zip(LOOPS, cs), c)
    assert bounds(f) == (min(values(f)), max(values(f)))
    quotient = Node(Op.IDIV, INDEX, (f,), k)
    assert bounds(quotient) == (min(values(quotient)), max(values(quotient)))


@given(forms(), divisors)
def test_division(f, k):
    q, r = divmod_form(f, k)
    is_normal(q), is_normal(r)
    assert list(zip(values(q), values(r))) == [divmod(v, k) for v in values(f)]
    assert 0 <= bounds(r)[0] and bounds(r)[1] < k or bounds(r) == (0, 0)
    whole, rest = split_terms(f, k)
    assert values(f) == [k * a + b for a, b in zip(values(whole), values(rest))]


@given(forms(), divisors)
def test_a_multiple_divides_without_a_division(f, k):
    q, r = divmod_form(scale(f, k), k)
    assert q is f and r is num(0)
    assert divmod_form(form(scale(f, k), k - 1), k) == (f, num(k - 1))


@given(forms(), divisors, divisors)
def test_a_quotient_of_a_quotient(f, a, b):
    q = divmod_form(divmod_form(f, a)[0], b)[0]
    assert values(q) == [v // (a * b) for v in values(f)]


def test_what_needs_no_division():
    i, j, k, _ = LOOPS
    assert divmod_form(linear([(i, 3), (j, 1)]), 3) == (form(i), form(j))
    assert divmod_form(linear([(i, -3), (j, 1)], -6), 3) == (linear([(i, -1)], -2), form(j))
    q, r = divmod_form(linear([(k, 6), (j, 3)], 2), 12)
    assert (q, r) == (divmod_form(linear([(k, 2), (j, 1)]), 4)[0], form(scale(divmod_form(linear([(k, 2), (j, 1)]), 4)[1], 3), 2))
    assert divides(*divmod_form(linear([(i, 1), (j, 4)]), 4)) == 0        # i < 4: it fits
    assert divides(*divmod_form(linear([(k, 1), (j, 4)]), 4)) > 0         # k < 5: it does not, by one
    assert divides(*divmod_form(linear([(i, -1)]), 4)) > 0                # -i // 4 is not -(i // 4)


@given(st.lists(st.integers(1, 5), max_size=4))
def test_positions_there_and_back(shape):
    idx = tuple(form(loop(n, s)) if s > 1 else num(0) for n, s in enumerate(shape))
    f = flatten(idx, tuple(shape))
    assert unflatten(f, tuple(shape)) == idx
    at = [dict(zip((loop(n, s) for n, s in enumerate(shape)), vs)) for vs in itertools.product(*map(range, shape))]
    assert values(f, at) == list(range(len(at)))


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.integers(-3, 3).filter(bool), st.integers(0, 9))
def test_what_was_taken_apart_is_put_together(shape, c, start):
    n = 1
    for s in shape: n *= s
    f = form(loop(0, n)) if n > 1 else num(0)
    idx = unflatten(f, tuple(shape))
    assert flatten(idx, tuple(shape)) is f
    assert linear([(flatten(idx, tuple(shape)), c)], start) is linear([(f, c)], start)


@given(forms(), divisors, small)
def test_quotient_and_remainder_are_the_whole(f, k, c):
    q, r = divmod_form(f, k)
    whole = linear([(q, c * k), (r, c)])
    assert values(whole) == [c * v for v in values(f)]
    assert divides(whole) <= divides(f)


@given(st.sampled_from([((12,), (3, 4)), ((4, 6), (3, 8)), ((2, 3, 4), (4, 6)), ((24,), (2, 3, 4)), ((5, 6), (3, 10)), ((6, 1), (1, 6))]))
def test_positions_under_another_shape(shapes):
    a, b = shapes
    loops = [loop(n, s) for n, s in enumerate(a)]
    idx = unflatten(flatten([form(r) for r in loops], a), b)
    at = [dict(zip(loops, vs)) for vs in itertools.product(*map(range, a))]
    assert list(zip(*(values(f, at) for f in idx))) == list(np.ndindex(b))


@given(forms(), small, st.integers(0, 20))
def test_clamp(f, lo, width):
    c = clamp(f, lo, lo + width)
    assert values(c) == [min(max(v, lo), lo + width) for v in values(f)]
    assert lo <= bounds(c)[0] and bounds(c)[1] <= lo + width
    if lo <= bounds(f)[0] and bounds(f)[1] <= lo + width: assert c is f


@given(forms(), st.integers(1, 9), st.sampled_from([1, 2, 3]), divisors, small)
def test_a_guard_grants_bounds_where_it_holds(f, n, s, k, c):
    t = scale(f, s)                                # whole when divided by s
    w = within(t, n, s)
    here = [at for at in POINTS if 0 <= value(t, at) // s < n]
    outer = form(*divmod_form(form(scale(w, c), 1), k), w)
    assert values(outer, here) == [sum(divmod(c * v + 1, k)) + v for v in values(f, here)]
    assert values(plain(outer), here) == values(outer, here)
    assert not any(a.op is Op.WITHIN for a in toposort(plain(outer)))
    assert scale(w, s) is t or s == 1              # where a coefficient takes the division back, there is none


@given(forms(), forms(1), forms(1))
def test_replace_a_loop_by_a_form(f, g, h):
    i, j, *_ = LOOPS
    new = replace(f, {i: g, j: h})
    is_normal(new)
    assert values(new) == [value(f, {**at, i: value(g, at), j: value(h, at)}) for at in POINTS]
    assert ranges(new) <= ranges(f) - {i, j} | ranges(g) | ranges(h)


def test_a_loop_that_is_split_ends_as_two():
    long, outer, lane = loop(0, 64), loop(1, 8), loop(2, 8)
    load = Node(Op.LOAD, dtypes.float32, (linear([(long, 3)], 1),), (0, False))
    total = Node(Op.REDUCE, dtypes.float32, (load,), (Op.ADD, (long,)))
    new = replace(total, {long: linear([(lane, 1), (outer, 8)])})
    assert new.arg == (Op.ADD, (outer, lane)) and not ranges(new)
    assert new.src[0].src[0] is linear([(outer, 24), (lane, 3)], 1)
    assert replace(total, {long: num(5)}) is Node(Op.LOAD, dtypes.float32, (num(16),), (0, False))
    assert coefficient(new.src[0].src[0], outer) == 24 and coefficient(num(3), outer) == 0


@settings(max_examples=20)
@given(st.permutations(range(8)))
def test_one_form_whatever_the_order(order):
    parts = [(LOOPS[0], 2), (LOOPS[1], -3), (LOOPS[2], 1), (LOOPS[0], 5), (num(4), 2),
             (divmod_form(form(LOOPS[2]), 2)[0], 3), (divmod_form(form(LOOPS[2]), 2)[1], -1), (LOOPS[1], 3)]
    assert linear([parts[i] for i in order]) is linear(parts)
