"""Warnings that are logged once."""

from __future__ import annotations

import logging

import pytest

from rackassign.util.log_once import WarnOnce


def test_names_that_others_have_chosen_begin_no_line_and_no_escape_sequence(caplog: pytest.LogCaptureFixture) -> None:
    once = WarnOnce(logging.getLogger("rackassign.test"))
    once.warn("k", "member %s is %r: %d of %.1f", "m\nERROR all is lost\x1b[2J", ValueError("a\nb"), 3, 4.0)
    assert caplog.messages == ["member m\\nERROR all is lost\\x1b[2J is 'a\\\\nb': 3 of 4.0"]
