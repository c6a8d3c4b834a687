"""The report, as a browser renders it; names in it are hostile."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackassign.monitoring import ClusterReport, Price, SkippedGroup, Throughput
from rackassign.monitoring.html.page import page
from rackassign.monitoring.html.sankey import HEIGHT, WIDTH, sankey_layout
from rackassign.util.text import strip_control_chars
from tests.helpers.builders import brokers, cluster, group, inspected, member, rates
from tests.helpers.html_checks import HOSTILE, Browse, Document, with_notes

AT = datetime(2026, 1, 2, 3, 4, tzinfo=timezone.utc)


def survey(names: tuple[str, ...] = ("orders",), *, measured: bool = True) -> ClusterReport:
    """One group a name, with a topic, members and racks of that name as well."""
    there = cluster(
        {name: [[1], [2], [3], [1, 2]] for name in names}, brokers((f"a {names[0]}", f"b {names[-1]}", "c"))
    )
    known = rates({(name, p): 1000.0 * (p + 1) for name in names for p in range(4)}) if measured else Throughput()
    groups = [
        group(
            member(f"1 {name}", f"a {names[0]}", {name: [0, 1]}, client_id=name),
            member(f"2 {name}", None, {name: [2]}, client_id=f"silent {name}", host=name),
            member(f"3 {name}", f"b {names[-1]}", {name: [3]}, client_id=name),
            name=name,
            strategy=name,
        )
        for name in names
    ]
    odd = tuple(SkippedGroup(name, f"odd {name}") for name in names)
    return ClusterReport(there, tuple(inspected(each, there, known) for each in groups), odd, known)


def test_the_page_shows_what_was_found(browse: Browse) -> None:
    seen = survey()
    shown = browse(page(seen, Price(), AT))
    text = " ".join(shown.texts)
    assert "2026-01-02 03:04 UTC" in text
    # 2 kB/s from b to a; partition 3 has a copy in b, and the reader of 3 kB/s may be anywhere.
    assert "2 kB to 5 kB/s" in shown.texts
    (inspection,) = seen.inspections
    assert f"{Price().monthly(2000):.2f} to {Price().monthly(5000):.2f} USD" in shown.texts
    for side, reads in (("now", inspection.now), ("with rackassign", inspection.reach("cooperative-sticky").reads)):
        counts = [sum(read.kind == kind for read in reads) for kind in ("local", "cross", "unknown")]
        assert f"{side}: {counts[0]} local, {counts[1]} across racks, {counts[2]} unknown" in text
    assert len(shown.of_class("cell")) == 2 * len(inspection.now)
    assert len(shown.of_class("member")) == 2 * 3
    assert shown.of_class("cell", "cross")[0]["title"] == "orders-1 from b orders"
    assert len([tag for tag, _ in shown.elements if tag == "li"]) == 1 + len(inspection.actions) + len(
        inspection.reach("cooperative-sticky").reasons
    )


def test_names_stay_names(browse: Browse) -> None:
    shown = browse(page(survey(HOSTILE), Price(), AT))
    assert not shown.tags() & {"script", "img", "iframe", "object", "link"}
    assert sum(tag == "h1" for tag, _ in shown.elements) == 1
    assert not [of for _, of in shown.elements if any(name.startswith("on") for name in of)]
    assert {of.get("href", "#")[:1] for tag, of in shown.elements if tag == "a"} == {"#"}  # type: ignore[index]
    for name in map(strip_control_chars, HOSTILE):
        assert name in shown.texts
        assert f"{name}: odd {name}" in shown.texts
        assert any(of.get("title") == f"{name}-1 from b {HOSTILE[-1]}" for of in shown.of_class("cell"))


def test_the_page_runs_nothing(browse: Browse) -> None:
    # That the same script does run where the page's own protection is taken away is what the next test stands on.
    assert "data-overflow" not in browse(with_notes(page(survey(), Price(), AT), unprotected=False)).body()


@pytest.mark.parametrize("width", [360, 1400])
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_fits_and_can_be_read(browse: Browse, width: int, *, dark: bool) -> None:
    text = page(survey(("orders", *HOSTILE)), Price(), AT)
    body = browse(with_notes(text), width=width, dark=dark).body()
    assert (body["data-overflow"], body["data-outside"], body["data-cells"]) == ("0", "0", "3")
    assert int(body["data-ribbons"] or 0) > 0
    ground, ink = (sum(map(int, (body[key] or "")[4:-1].split(","))) for key in ("data-ground", "data-ink"))
    assert (ink - ground > 400) if dark else (ground - ink > 400)


@pytest.mark.parametrize("measured", [True, False])
def test_a_page_needs_no_browser_to_be_checked(measured: bool) -> None:  # noqa: FBT001 - a parameter of the test
    text = page(survey(HOSTILE, measured=measured), Price(), AT)
    shown = Document(text)
    assert not shown.tags() & {"script", "img", "link"}
    assert not [of for _, of in shown.elements if {"src", "onerror"} & of.keys()]
    assert ("USD" in text) == measured
    assert text.index("Content-Security-Policy") < text.index("<style>")
    assert text == page(survey(HOSTILE, measured=measured), Price(), AT)
    # Neither the name that turns what follows around nor any other control.
    assert "\\u202eesrever" in shown.texts
    assert all(line.isprintable() for line in text.splitlines())


def test_many_partitions_are_not_all_drawn() -> None:
    there = cluster({"t": [[1]] * 2500})
    seen = ClusterReport(there, (inspected(group(member("m", "a", {"t": range(2500)})), there),), (), Throughput())
    text = page(seen, Price(), AT)
    assert len(Document(text).of_class("cell")) == 2 * 2000
    assert "500 partitions more are not drawn" in text
    nobody = ClusterReport(there, (inspected(group(), there),), (), Throughput())
    assert "now: 0 local" in page(nobody, Price(), AT)


RACKS = st.sampled_from(["a", "b", "c", None])


@given(st.dictionaries(st.tuples(RACKS, RACKS), st.just(0.0) | st.floats(1e-3, 1e12)))
def test_the_picture_stays_on_its_canvas(pairs: dict[Any, float]) -> None:
    drawn = sankey_layout(pairs)
    flowing = {pair: amount for pair, amount in pairs.items() if amount > 0}
    assert {(ribbon.source, ribbon.home): ribbon.amount for ribbon in drawn.ribbons} == flowing
    for box in (*drawn.left, *drawn.right):
        assert 0 <= box.x <= WIDTH
        assert box.y >= 0
        assert box.y + box.height <= HEIGHT + 0.1
    for side in (drawn.left, drawn.right):
        assert sum(box.amount for box in side) == pytest.approx(sum(flowing.values()))


def test_no_share_is_more_than_all_and_what_was_not_measured_is_marked() -> None:
    there = cluster({"t": [[1], [1], [1]]})
    known = rates({("t", 0): 1000.0})
    seen = ClusterReport(
        there, (inspected(group(member("m", "b", {"t": [0]}), member("n", "a", {}, "t")), there, known),), (), known
    )
    shares = [float(text.removesuffix(" %")) for text in Document(page(seen, Price(), AT)).texts if text.endswith(" %")]
    assert max(shares) <= 100
    part = ClusterReport(there, (inspected(group(member("m", "b", {"t": [0, 1]})), there, known),), (), known)
    assert "≥1 kB/s" in Document(page(part, Price(), AT)).texts


def test_a_survey_that_saw_nothing_is_a_page_too() -> None:
    nothing = replace(survey(), inspections=(), skipped=())
    assert "0" in Document(page(nothing, Price(), AT)).texts
