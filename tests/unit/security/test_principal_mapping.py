"""Who a certificate makes its owner."""

from __future__ import annotations

import pytest

from semel.security.principal_mapping import mapped, parse_rules, subject_of

SUBJECT = "CN=App One,OU=Sales,O=Company,C=DE"


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", SUBJECT),
        ("RULE:^CN=([^,]+),.*$/$1/", "App One"),
        ("RULE:^CN=([^,]+),.*$/$1/L", "app one"),
        ("RULE:^CN=([^,]+),.*$/$1/U , DEFAULT", "APP ONE"),
        ("RULE:^CN=([^,]+),OU=([^,]+),.*$/$1@$2/", "App One@Sales"),
        ("RULE:^CN=other$/x/,RULE:.*O=(.*),C=.*/$1/", "Company"),
        ("RULE:^CN=other$/x/", None),
        ("RULE:CN=App/x/", None),  # a rule matches the whole subject, or not at all
        ("RULE:.*/$7/", None),
    ],
)
def test_the_first_rule_that_matches_decides(rules: str, name: str | None) -> None:
    assert mapped(parse_rules(rules), SUBJECT) == name


@pytest.mark.parametrize("text", ["RULE:a/b", "RULE:(/x/", "nonsense", "DEFAULT,RULE:", "RULE:a/b/X"])
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"rule|pattern"):
        parse_rules(text)


def test_a_subject_is_written_as_java_writes_it() -> None:
    certificate = {
        "subject": (
            (("countryName", "DE"),),
            (("organizationName", "A, B"),),
            (("emailAddress", "a@b"),),
            (("organizationalUnitName", "x"), ("userId", "7")),
            (("commonName", "#node "),),
        )
    }
    expected = "CN=\\#node\\ ,OU=x+UID=7,1.2.840.113549.1.9.1=#1603614062,O=A\\, B,C=DE"
    assert subject_of(certificate) == expected
