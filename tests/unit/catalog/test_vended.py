"""Secrets that a catalog hands out are known by the names of their properties, and hidden from everything written."""

from __future__ import annotations

from frazil.api.redaction import Redaction
from frazil.secrets import MOST_KEPT, Vended, secrets_among

GIVEN = {
    "s3.access-key-id": "AKIA123456",
    "s3.secret-access-key": "s3cr3t/+key",
    "s3.session-token": "session-token-1",
    "s3.session-token-expires-at-ms": "1795258921596",
    "gcs.oauth2.token": "ya29.abcdef",
    "adls.sas-token.account.dfs.core.windows.net": "sv=2024&sig=abc%3D",
    "adls.auth.shared-key.account.key": "c2hhcmVka2V5",
    "credential": "client:pa55word",
    "oauth2-server-uri": "https://catalog/v1/oauth/tokens",
    "token-refresh-enabled": "true",
    "client.region": "eu-west-1",
    "header.X-Token": "abc",
}


def test_secrets_are_known_by_the_names_of_their_properties() -> None:
    assert secrets_among(GIVEN) == {
        "s3cr3t/+key", "session-token-1", "ya29.abcdef", "sv=2024&sig=abc%3D", "c2hhcmVka2V5", "client:pa55word",
        "pa55word",
    }  # fmt: skip


def test_what_a_catalog_hands_out_is_in_no_text_from_then_on() -> None:
    vended = Vended()
    redaction = Redaction(vended)
    redaction.hide(["of-the-file"])
    assert redaction.text("of-the-file s3cr3t/+key") == "*** s3cr3t/+key"
    vended.note(GIVEN)
    assert redaction.text("of-the-file s3cr3t/+key s3cr3t%2F%2Bkey pa55word") == "*** *** *** ***"
    assert redaction.document({"why": ["403 for session-token-1"]}) == {"why": ["403 for ***"]}


def test_the_newest_secrets_are_kept() -> None:
    vended = Vended()
    vended.note(GIVEN)
    for n in range(MOST_KEPT):
        vended.note({"token": f"rotated-{n:06}"})
    assert len(vended.values) == MOST_KEPT
    assert f"rotated-{MOST_KEPT - 1:06}" in vended.values
    assert "ya29.abcdef" not in vended.values


def test_a_secret_that_is_seen_again_does_not_change_what_is_known() -> None:
    vended = Vended()
    vended.note(GIVEN)
    known = vended.values
    vended.note(GIVEN)
    assert vended.values is known
