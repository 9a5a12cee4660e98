"""The gated delta rule in PyTorch, all segments of a stage side by side, chunk by chunk."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from flide_engine.core import GRID
from flide_engine.round import ZERO

if TYPE_CHECKING:
    from flide_engine.round import Segments


class _Chunk(NamedTuple):
    """Rows of one chunk of A segments, heads before rows."""

    query: torch.Tensor  # [A, HV, GRID, K]
    key: torch.Tensor  # [A, HV, GRID, K]
    value: torch.Tensor  # [A, HV, GRID, V]
    decay: torch.Tensor  # [A, HV, GRID] summed from the start of the chunk
    beta: torch.Tensor  # [A, HV, GRID]


def gated_delta_rule(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    decay: torch.Tensor,
    beta: torch.Tensor,
    states: torch.Tensor,
    segments: Segments,
) -> torch.Tensor:
    """See `gated_delta_rule`."""
    out = torch.empty_like(value)
    scratch = states.new_empty(segments.num_scratch, *states.shape[1:])
    rows = (query, key, value, decay, beta)
    trunks = range(segments.num_trunks)
    branches = range(segments.num_trunks, len(segments.lengths))
    for stage in (trunks, branches):
        # Longest first, so that the segments still running are always the leading ones.
        order = sorted(stage, key=lambda index: -segments.lengths[index])
        if order:
            _run_stage(order, rows, states, scratch, segments, out)
    return out


def _run_stage(
    order: list[int],
    rows: tuple[torch.Tensor, ...],
    states: torch.Tensor,
    scratch: torch.Tensor,
    segments: Segments,
    out: torch.Tensor,
) -> None:
    """Run the segments of one stage, every chunk of all of them at once."""
    current = torch.stack([_state(states, scratch, segments.states[index]) for index in order])
    for chunk in range(-(-segments.lengths[order[0]] // GRID)):
        active = [index for index in order if segments.lengths[index] > chunk * GRID]
        starts = torch.tensor([segments.starts[index] + chunk * GRID for index in active])
        left = torch.tensor([segments.lengths[index] - chunk * GRID for index in active])
        offset = torch.arange(GRID)
        valid = offset < left[:, None]
        index = torch.where(valid, starts[:, None] + offset, starts[:, None]).to(out.device)
        valid = valid.to(out.device)
        gathered = _gather(rows, index, valid, states.dtype)
        more = len([i for i in active if segments.lengths[i] > (chunk + 1) * GRID])
        saves = [
            (a, segments.outs[i, chunk])
            for a, i in enumerate(active)
            if (i, chunk) in segments.outs
        ]
        needs_state = more > 0 or bool(saves)
        result, after = _step(gathered, current[: len(active)], needs_state)
        out[index[valid]] = result.transpose(1, 2)[valid].to(out.dtype)
        if after is not None:
            current = after
            for position, state in saves:
                _state(states, scratch, state).copy_(after[position])


def _state(states: torch.Tensor, scratch: torch.Tensor, index: int) -> torch.Tensor:
    """The state of that name (round.Segments)."""
    if index == ZERO:
        return states.new_zeros(states.shape[1:])
    return states[index] if index < len(states) else scratch[index - len(states)]


def _gather(
    rows: tuple[torch.Tensor, ...], index: torch.Tensor, valid: torch.Tensor, dtype: torch.dtype
) -> _Chunk:
    """Rows `[A, GRID]` of every operand; past a segment's end nothing decays or is written."""
    query, key, value, decay, beta = (operand[index].to(dtype).transpose(1, 2) for operand in rows)
    groups = value.shape[1] // key.shape[1]
    mask = valid[:, None, :]
    return _Chunk(
        query.repeat_interleave(groups, dim=1),
        key.repeat_interleave(groups, dim=1),
        value,
        (decay * mask).cumsum(-1),
        beta * mask,
    )


def _step(
    chunk: _Chunk, state: torch.Tensor, needs_state: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """One chunk from its states `[A, HV, K, V]`: `[A, HV, GRID, V]`, and the states after it.

    The updates of a chunk's rows depend on each other through a unit lower triangular system (the
    UT transform of Yang et al., 2025); solving it once turns the chunk into matrix products.
    """
    since = chunk.decay.unsqueeze(-1) - chunk.decay.unsqueeze(-2)
    upper = torch.ones(GRID, GRID, dtype=torch.bool, device=state.device).triu(1)
    since = since.masked_fill_(upper, float("-inf")).exp_()
    key_beta = chunk.key * chunk.beta.unsqueeze(-1)
    from_start = chunk.decay.exp().unsqueeze(-1)
    system = (key_beta @ chunk.key.mT).mul_(since)
    # What the rows want to write, less what the incoming state already answers for their keys.
    wanted = chunk.value * chunk.beta.unsqueeze(-1) - (key_beta * from_start) @ state
    written = torch.linalg.solve_triangular(system, wanted, upper=False, unitriangular=True)
    scores = (chunk.query @ chunk.key.mT).mul_(since)
    out = (chunk.query * from_start) @ state + scores @ written
    if not needs_state:
        return out, None
    to_end = (chunk.decay[..., -1:] - chunk.decay).exp().unsqueeze(-1)
    after = state * from_start[..., -1:, :] + (chunk.key * to_end).mT @ written
    return out, after
