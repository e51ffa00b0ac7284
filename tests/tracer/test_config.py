import pytest

from tenferro.tracer.config import Config, ConfigError, config, read_config


def test_nothing_set_gives_the_defaults():
    assert read_config({"HOME": "/somewhere", "TENFERRO_CACHE": ""}) == Config()


def test_every_variable_is_read():
    found = read_config({
        "TENFERRO_NUM_THREADS": "3", "TENFERRO_SHOW": "llvm, asm", "TENFERRO_CACHE": "off", "TENFERRO_CACHE_DIR": "/c",
        "TENFERRO_CACHE_BYTES": "2M", "TENFERRO_WRAP_NUMPY": "0", "TENFERRO_CHECK": "1", "TENFERRO_ENGINE": "reference",
        "TENFERRO_TIER": "2", "TENFERRO_VECTOR_BITS": "256", "TENFERRO_POOL_BYTES": "0", "TENFERRO_MEMORY_LIMIT": "1G",
        "TENFERRO_FLUSH_SUBNORMALS": "on",
    })  # fmt: skip
    assert found == Config(
        num_threads=3, show=frozenset({"llvm", "asm"}), cache=False, cache_dir="/c", cache_bytes=2 << 20,
        wrap_numpy=False, check=True, engine="reference", tier="2", vector_bits=256, pool_bytes=0, memory_limit=1 << 30,
        flush_subnormals=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("variable", "value", "legal"),
    [
        ("TENFERRO_NUM_THREADS", "0", "1 to 1024"), ("TENFERRO_NUM_THREADS", "two", "1 to 1024"),
        ("TENFERRO_SHOW", "llvm,ptx", "program, exec, schedule, regions, segments, kernel, llvm, asm, cuda"),
        ("TENFERRO_CACHE", "yes", "1, true or on"),
        ("TENFERRO_CACHE_DIR", "here", "absolute"), ("TENFERRO_ENGINE", "gpu", "cpu, reference"),
        ("TENFERRO_TIER", "3", "auto, 0, 2"), ("TENFERRO_VECTOR_BITS", "64", "256 or 512"),
        ("TENFERRO_POOL_BYTES", "1T", "512M"), ("TENFERRO_MEMORY_LIMIT", "-1", "bytes"),
    ],
)  # fmt: skip
def test_an_illegal_value_is_refused_with_the_legal_ones(variable, value, legal):
    with pytest.raises(ConfigError) as caught:
        read_config({variable: value})
    assert variable in str(caught.value) and repr(value) in str(caught.value) and legal in str(caught.value)


def test_a_misspelt_variable_is_refused():
    with pytest.raises(ConfigError, match="TENFERRO_NUM_THREAD: no such setting"):
        read_config({"TENFERRO_NUM_THREAD": "2"})


def test_only_fields_that_change_code_are_in_the_code_key():
    assert Config().code_key() == Config(num_threads=5, cache=False).code_key()
    assert Config().code_key() != Config(vector_bits=256).code_key()
    assert Config().code_key() != Config(tier="2").code_key()


def test_config_is_read_once():
    assert config() is config()
