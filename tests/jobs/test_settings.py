"""The environment is read once, and what it says wrongly is refused in one line."""

from pathlib import Path

import pytest

from jobs.settings import Settings, shown_url
from schemas.errors import InvalidJob


def test_an_empty_environment_gives_the_defaults_below_the_users_data_directory() -> None:
    settings = Settings.from_environ({"XDG_DATA_HOME": "/data"})
    assert settings.data_dir == Path("/data/specbatch")
    assert (settings.redis_url, settings.lease_seconds, settings.max_attempts) == (None, 15.0, 3)


def test_values_are_read_and_other_variables_are_nobodys_business() -> None:
    environ = {"JOBCTL_REDIS_URL": "redis://h:1/2", "JOBCTL_MAX_ATTEMPTS": "5", "REDIS_URL": "x", "jobctl_x": "y"}
    settings = Settings.from_environ(environ)
    assert (settings.redis_url, settings.max_attempts) == ("redis://h:1/2", 5)


def test_an_empty_url_is_none() -> None:
    assert Settings.from_environ({"JOBCTL_REDIS_URL": ""}).redis_url is None


def test_a_relative_data_dir_is_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert Settings.from_environ({"JOBCTL_DATA_DIR": "d"}).data_dir == tmp_path / "d"
    assert Settings.from_environ({"JOBCTL_DATA_DIR": "~/d"}).data_dir == Path.home() / "d"


def test_a_child_process_gets_the_same_settings() -> None:
    settings = Settings(redis_url="unix:///s", data_dir=Path("/d"), lease_seconds=2.5, max_attempts=7, key_prefix="k:")
    assert Settings.from_environ(settings.to_environ()) == settings
    without_url = settings.model_copy(update={"redis_url": None})
    assert Settings.from_environ(without_url.to_environ()) == without_url


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("JOBCTL_LEASE_SECOND", "3", "unknown variable JOBCTL_LEASE_SECOND; known are JOBCTL_REDIS_URL, "),
        ("JOBCTL_LEASE_SECONDS", "soon", "JOBCTL_LEASE_SECONDS: Input should be a valid number"),
        ("JOBCTL_LEASE_SECONDS", "0", "JOBCTL_LEASE_SECONDS: Input should be greater than 0"),
        ("JOBCTL_LEASE_SECONDS", "inf", "JOBCTL_LEASE_SECONDS: Input should be a finite number"),
        ("JOBCTL_MAX_ATTEMPTS", "0", "JOBCTL_MAX_ATTEMPTS: Input should be greater than or equal to 1"),
        ("JOBCTL_KEY_PREFIX", "", "JOBCTL_KEY_PREFIX: String should have at least 1 character"),
        ("JOBCTL_REDIS_URL", "amqp://user:secret@h", "JOBCTL_REDIS_URL: it must begin with redis://, rediss:// or"),
        ("JOBCTL_VISIBILITY_TIMEOUT_SECONDS", "9", "JOBCTL_VISIBILITY_TIMEOUT_SECONDS must be above JOBCTL_LEASE_"),
    ],
)
def test_what_is_wrong_is_one_line_that_names_the_variable(name: str, value: str, says: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        Settings.from_environ({name: value})
    assert str(caught.value).startswith(says)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://:secret/1@h", "quote / ? # and @ in its password: %2F"),
        ("redis://:1/secret@h", "quote / ? # and @ in its password: %2F"),
        ("redis://:1?secret@h", "it is no URL; quote the password's own"),
        ("redis://:1#secret@h", "quote / ? # and @ in its password: %2F"),
        ("redis://:[secret@h", "it is no URL; quote the password's own"),
        ("redis://:secret@h:x", "its port is not a number"),
        ("rediss://h?ssl_cert_reqs=none", "after ? it may have only ssl_ca_certs="),
        ("rediss://h?ssl_check_hostname=false", "after ? it may have only ssl_ca"),
        ("redis://h?password=secret", "after ? it may have nothing; certificates"),
        ("rediss://h?ssl_ca_certs=/nowhere", "what its ssl_ca_certs names is no file"),
    ],
)
def test_a_url_that_is_wrong_is_refused_without_a_word_of_it(url: str, says: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        Settings.from_environ({"JOBCTL_REDIS_URL": url})
    assert str(caught.value).startswith(f"JOBCTL_REDIS_URL: {says}")
    assert "secret" not in str(caught.value)


def test_a_password_is_not_shown() -> None:
    url = "redis://user:secret@host:6379/0"
    assert shown_url(url) == "redis://host:6379/0"
    assert shown_url("unix:///run/s?password=secret") == "unix:///run/s"
    assert "secret" not in repr(Settings(redis_url=url, data_dir=Path("/d")))
