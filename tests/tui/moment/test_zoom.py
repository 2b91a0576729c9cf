"""How much time plots show: what there is, until the user chooses."""

from gpumon.tui.moment.zoom import Zoom


def test_a_plot_grows_with_what_there_is_up_to_its_first_length():
    zoom = Zoom(600.0)
    assert [zoom.span_s(age) for age in (5, 61, 299, 301, 5000)] == [60, 300, 300, 600, 600]


def test_a_choice_starts_from_what_is_shown_and_stops_at_both_ends():
    zoom = Zoom(600.0).by(1, 300.0)
    assert zoom.span_s(5) == 600
    assert Zoom(600.0).by(-9, 300.0).span_s(5) == 60
    every = zoom.by(99, 600.0)
    assert (every.span_s(7680), every.text(7680)) == (7680, "all")


def test_everything_grows_in_steps_of_an_eighth():
    every = Zoom(600.0).by(99, 600.0)
    spans = {every.span_s(age) for age in range(3600, 7200)}
    assert len(spans) <= 9
    for age in (60, 3601, 7199, 90000):
        assert age <= every.span_s(age) <= age * 9 / 8
