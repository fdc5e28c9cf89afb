"""What the clients of a process share."""

from kinesis_stub import PROPERTIES

from recordpublisher.publishers.kinesis.connections import Connections
from recordpublisher.publishers.properties import Properties


def loader():
    return Connections(Properties(PROPERTIES))._session.get_component("data_loader")


def test_the_sdks_models_are_read_once_for_the_process_and_its_data_path(monkeypatch, tmp_path):
    assert loader() is loader()
    monkeypatch.setenv("AWS_DATA_PATH", str(tmp_path))
    assert str(tmp_path) in loader().search_paths
