

# From here on: a running cluster instead of a container; appended to the suite's own conftest.py.
@pytest.fixture(scope="session")
def kafka_image():
    return "running/kafka:2.12_2.8.1"


@pytest.fixture(scope="session")
def docker():
    return None


@pytest.fixture(scope="session")
def ssl_folder():
    return pathlib.Path("none")


@pytest.fixture(scope="session")
def acl_manager():
    return None


@pytest.fixture(scope="session")
def kerberos_utils():
    return None


@pytest.fixture(scope="session")
def kafka_config():
    return None


@pytest.fixture(scope="session")
def kafka_server():
    host, port = os.environ["BOOTSTRAP"].split(",")[0].rsplit(":", 1)
    return KafkaServer(host, int(port), 0, 0, 0, None)
