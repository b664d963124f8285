"""The course's pictures: pure functions from a run, a verdict, a trace or numbers to a picture with alt text.

Input that is "not yet" gives a picture that says so, and so does a trace without messages. Each file is named by what its
picture shows; the package uses no pyplot and no global state.
"""

from worldsize.figures.bars import Timing, predicted, race, tallies
from worldsize.figures.base import not_yet
from worldsize.figures.chunk_contents import contributions
from worldsize.figures.device_traffic import moved
from worldsize.figures.diagrams.bandwidth_ladder import Bandwidth, bandwidth_ladder
from worldsize.figures.diagrams.collective_strip import collective_strip
from worldsize.figures.diagrams.matrix_cuts import matrix_cuts
from worldsize.figures.diagrams.two_level_rings import two_level_rings
from worldsize.figures.diagrams.zero_stages import zero_stages
from worldsize.figures.frame.answers import first, growing, quicker, same
from worldsize.figures.frame.heading import answered
from worldsize.figures.kept_work import kept_work
from worldsize.figures.link_heatmap import links
from worldsize.figures.measured_curves import Curve, curves
from worldsize.figures.one_step.step_timelines import middle_step, overlaps
from worldsize.figures.one_step.two_records import at_work, in_step, two_records
from worldsize.figures.outcome_table import outcomes
from worldsize.figures.pipeline_timeline import pipeline
from worldsize.figures.placement_and_route import placement, route
from worldsize.figures.rank_timeline import timeline
from worldsize.figures.replay.bands import replay
from worldsize.figures.report_curves import reports
from worldsize.figures.spacetime import messages
from worldsize.figures.stacked_bars import stacks
from worldsize.figures.statistics.distributions import Sample, bands, spreads
from worldsize.figures.statistics.fit_residuals import Line, residuals
from worldsize.figures.statistics.held_intervals import Forecast, intervals
from worldsize.figures.statistics.race_panels import races
from worldsize.figures.step_through.scene import steps
from worldsize.figures.training import Descent, descents, histories
from worldsize.figures.wait_graph import waiting
from worldsize.figures.weight_paths import paths
from worldsize.figures.workers import lanes, shares

__all__ = [
    "Bandwidth", "Curve", "Descent", "Forecast", "Line", "Sample", "Timing", "answered", "at_work", "bands",
    "bandwidth_ladder", "collective_strip", "contributions", "curves", "descents", "first", "growing", "histories", "in_step",
    "intervals", "kept_work", "lanes", "links", "matrix_cuts", "messages", "middle_step", "moved", "not_yet", "outcomes",
    "overlaps", "paths", "pipeline", "placement", "predicted", "quicker", "race", "races", "replay", "reports", "residuals",
    "route", "same", "shares", "spreads", "stacks", "steps", "tallies", "timeline", "two_level_rings", "two_records",
    "waiting", "zero_stages",
]  # fmt: skip
