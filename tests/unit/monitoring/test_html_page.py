"""The report, as a browser renders it; names in it are hostile."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timezone
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackassign import __version__
from rackassign.monitoring import ClusterReport, Price, SkippedGroup, Throughput, describe_change
from rackassign.monitoring.html_page import HEIGHT, WIDTH, page, sankey_layout
from rackassign.monitoring.traffic import TrafficMatrix
from rackassign.monitoring.written_bytes import TopicTraffic, WrittenTraffic
from rackassign.text import strip_control_chars
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
    for side, counts in (
        ("Now", inspection.partitions),
        ("With rackassign", inspection.best.partitions),
    ):
        local = f"{counts.local} partition{'s' if counts.local != 1 else ''}"
        assert f"{side}: {local} local, {counts.cross} across racks, {counts.unknown} unknown" in text
    assert f"First {describe_change(inspection.actions[0], [inspection])}" in text
    assert len(shown.of_class("member")) == 3
    assert "orders 1 from b orders" in shown.texts
    assert "rackassign " + __version__ in shown.texts
    assert len([tag for tag, _ in shown.elements if tag == "li"]) == 1 + len(inspection.actions) + len(
        inspection.best.reasons
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
        assert f"{name} 1 from b {HOSTILE[-1]}" in shown.texts


def test_the_page_runs_nothing(browse: Browse) -> None:
    # That the same script does run where the page's own protection is taken away is what the next test stands on.
    assert "data-overflow" not in browse(with_notes(page(survey(), Price(), AT), unprotected=False)).body()


@pytest.mark.parametrize(
    ("width", "dark"),
    [
        (360, True),
        (1400, False),
        *(pytest.param(*each, marks=pytest.mark.long) for each in ((360, False), (1400, True))),
    ],
)
def test_the_page_fits_and_can_be_read(browse: Browse, width: int, *, dark: bool) -> None:
    # The last one is also the name of a rack, of which a few letters stand beside the picture.
    text = page(survey(("orders", *HOSTILE, "zone-eu-central-1a" * 10)), Price(), AT)
    body = browse(with_notes(text), width=width, dark=dark).body()
    assert (body["data-overflow"], body["data-outside"], body["data-looks"]) == ("0", "0", "3")
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
    # The order is that of --sort.
    assert "<caption>Groups</caption>" in text
    assert text.index("Content-Security-Policy") < text.index("<style>")
    assert text == page(survey(HOSTILE, measured=measured), Price(), AT)
    # Neither the name that turns what follows around nor any other control.
    assert "\\u202eesrever" in shown.texts
    assert all(line.isprintable() for line in text.splitlines())


def test_what_is_written_is_shown_by_topic_with_its_warnings() -> None:
    seen = survey(HOSTILE)
    topics = tuple(
        TopicTraffic(name, log, TrafficMatrix({("nowhere", name): 2000.0}), TrafficMatrix({}))
        for name, log in zip(HOSTILE, (4000.0, *(None for _ in HOSTILE[1:])), strict=True)
    )
    shown = Document(
        page(seen, Price(), AT, producers=WrittenTraffic(topics, 10.0, by_totals=False, foreign=frozenset({"nowhere"})))
    )
    text = " ".join(shown.texts)
    assert "Written, and read by these groups" in text
    assert all(strip_control_chars(name) in text for name in HOSTILE)
    assert {"4 kB/s", "50.0 %", "2 kB/s", "?"} <= set(shown.texts)
    assert 'producers are in racks that no broker has: "nowhere"' in text
    assert "Written, and read" not in page(seen, Price(), AT)


def test_many_partitions_and_members_are_counted_and_not_all_listed() -> None:
    there = cluster({"t": [[1]] * 2500})
    reader = member("m", "a", {"t": range(0, 2500, 2)})
    idle = [member(f"n{i:03}", "a", {}, "t") for i in range(150)]
    seen = ClusterReport(there, (inspected(group(reader, *idle), there),), (), Throughput())
    text = page(seen, Price(), AT)
    assert "and 750 partitions more" in text
    assert "51 members more" in text
    nobody = ClusterReport(there, (inspected(group(), there),), (), Throughput())
    assert "Now: 0 partitions local" in page(nobody, Price(), AT)


def test_many_groups_are_folded_and_stay_in_their_order() -> None:
    there, known = cluster({"t": [[1], [2]]}), rates({("t", 0): 100.0, ("t", 1): 50.0})
    groups = [inspected(group(member("m", "b", {"t": [0, 1]}), name=f"g{i}"), there, known) for i in range(200)]
    few = Document(page(ClusterReport(there, tuple(groups[:3]), (), known), Price(), AT))
    many = Document(page(ClusterReport(there, tuple(reversed(groups)), (), known), Price(), AT))
    assert ["open" in of for tag, of in few.elements if tag == "details"] == [True] * 3
    assert ["open" in of for tag, of in many.elements if tag == "details"] == [False] * 200
    links = [of["href"] for tag, of in many.elements if tag == "a"]
    anchors = {of.get("id") for _, of in many.elements}
    assert {str(link)[1:] for link in links} <= anchors
    named = [text for text in many.texts if text.startswith("g") and text[1:].isdigit()]
    assert named == [f"g{i}" for i in range(199, -1, -1)] * 2


def test_a_group_that_would_stay_as_it_is_has_one_picture_and_one_of_unknown_racks_no_promise() -> None:
    there, known = cluster({"t": [[1], [2]]}), rates({("t", 0): 100.0, ("t", 1): 50.0})
    alike = inspected(group(member("m", "b", {"t": [0, 1]})), there, known)
    silent = inspected(group(member("m", None, {"t": [0, 1]})), there, known)
    for found, title in ((alike, "Now, and the same with rackassign"), (silent, "Now")):
        text = page(ClusterReport(there, (found,), (), known), Price(), AT)
        assert text.count("<figure>") == 1
        assert f"<h3>{title}: " in text


def test_the_page_can_be_used_without_eyes_colors_or_a_mouse() -> None:
    text = page(survey(("orders", "payments")), Price(), AT)
    shown = Document(text)
    headings = [of for tag, of in shown.elements if tag == "th"]
    assert headings
    assert {of.get("scope") for of in headings} == {"row", "col"}
    assert sum(tag == "table" for tag, _ in shown.elements) == sum(tag == "caption" for tag, _ in shown.elements)
    flows = shown.of_class("flow")
    assert flows
    assert all(of["tabindex"] == "0" and of["aria-label"] for of in flows)
    assert "b payments to a orders: 2 kB/s, across racks" in {of["aria-label"] for of in flows}
    assert all(of["tabindex"] == "0" and of["aria-label"] for of in shown.of_class("wide"))
    assert "read from brokers in" in shown.texts
    assert "by members in" in shown.texts
    assert shown.of_class("rate")


def luminance(color: str) -> float:
    """Return the relative luminance of a color (WCAG 2.2)."""
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def test_text_and_figures_stand_out_in_light_and_dark() -> None:
    style = files("rackassign.monitoring").joinpath("templates/style.css").read_text("utf-8")
    themes = [dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", block)) for block in re.findall(r":root \{([^}]*)\}", style)]
    light, dark = themes[:2]
    for theme in (light, dark):
        for ground in (theme["ground"], theme["card"]):
            assert min(contrast(theme[ink], ground) for ink in ("ink", "faint", "accent")) >= 4.5
            assert min(contrast(theme[mark], ground) for mark in ("local", "cross", "unknown")) >= 3


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
