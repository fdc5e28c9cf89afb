"""Each back end is declared once, and what messages and pages say of it follows."""

import pytest

from recordpublisher.fetcher.conditional_store import ConditionalStore
from recordpublisher.plugins.host.plugin_loading import load_registry
from recordpublisher.plugins.stores.back_ends import BACK_ENDS, BY_SCHEME, FOLDER, S3, back_end_of, forms_of

NAMES = [*BACK_ENDS]


@pytest.mark.parametrize("name", NAMES)
def test_its_form_and_its_schemes_lead_to_it_and_its_class_is_a_store(name):
    back_end = BACK_ENDS[name]
    assert issubclass(load_registry().stores.get(name, "uri"), ConditionalStore)
    assert back_end_of(back_end.form) is back_end
    assert all(back_end_of(f"{scheme}://a/b") is back_end for scheme in back_end.schemes + back_end.hadoop_schemes)
    assert back_end is FOLDER or back_end.form.startswith(back_end.schemes[0])


def test_no_scheme_has_two_back_ends():
    assert len(BY_SCHEME) == sum(len(each.schemes + each.hadoop_schemes) for each in BACK_ENDS.values())


def test_a_uri_gets_a_scheme_that_every_client_knows():
    assert [S3.uri_of(f"{scheme}://b/p") for scheme in ("s3a", "S3N", "S3")] == ["s3://b/p"] * 3
    assert back_end_of("abfs://c@a/p").uri_of("abfs://c@a/p") == "abfs://c@a/p"


def test_a_list_of_forms_has_an_or_before_the_last():
    assert forms_of([FOLDER]) == "a folder"
    assert (
        forms_of([FOLDER, S3], "vault:...", folder="a shared folder")
        == "a shared folder, s3://bucket/prefix or vault:..."
    )


def test_a_scheme_that_is_not_in_the_table_is_the_name_of_a_plugins_store():
    found = back_end_of("vault+tls://orders")
    assert (found.name, found.form, found.has_claims, found.is_local) == ("vault", "vault://...", True, False)
