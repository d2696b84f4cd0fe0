"""hazdev-broker's own three configuration files, and what tests of file clients share."""

import json
import os
from pathlib import Path

# The three files of hazdev-broker's own distribution, with their comments.
PRODUCER = """{
	"Type":"ProducerClient",
	"FileExtension":"default",
	"InputDirectory":"./in",
	# without it files are deleted
	"ArchiveDirectory":"./arch",
	"TimePerFile":1,
	"HeartbeatInterval":30,
	"HazdevBrokerConfig": {
		"Type":"ProducerConfig",
		"Properties":{
			"client.id":"producer.example",
			"group.id":"default.producer",
			"bootstrap.servers":"localhost:9092",
			"retries":"0"
		}
	},
	"Topic":"test",
	"Log4JConfigFile":"producerclient.log4j.properties"
}"""


CONSUMER = """{
	"Type":"ConsumerClient",
	"FileExtension":"default",
	"FileName":"default",
	"OutputDirectory":"./out",
	"MessagesPerFile":10,
	"TimePerFile":15,
	"HeartbeatInterval":120,
	"WriteHeartbeatFile":true,
	"HazdevBrokerConfig": {
		"Type":"ConsumerConfig",
		"Properties":{
			"client.id":"consumer.example",
			"group.id":"default.consumer",
			"bootstrap.servers":"localhost:9092",
			"enable.auto.commit":"true"
		}
	},
	"TopicList":["test"],
	"Log4JConfigFile":"consumerclient.log4j.properties"
}"""


ARCHIVE = """{
	"Type":"ArchiveClient",
	# The file extension to use when creating daily files
	"FileExtension":"default",
	"FileName":"default",
	"OutputDirectory":"./files",
	"HazdevBrokerConfig": {
		"Type":"ConsumerConfig",
		"Properties":{
			"client.id":"archive.example",
			"group.id":"default.archive",
			"bootstrap.servers":"localhost:9092",
			"enable.auto.commit":"true"
		}
	},
	"TopicList":["test"],
	"Log4JConfigFile":"archiveclient.log4j.properties"
}"""


def written(tmp_path, text, **changed) -> str:
    path = tmp_path / "client.config"
    if changed:
        from bridge.client.config import parse

        text = json.dumps({**parse(text)[0], **changed})
    path.write_text(text, encoding="utf-8")
    return str(path)


def visible(directory: Path):
    return sorted(name for name in os.listdir(directory) if not name.startswith("."))


class Crash(BaseException):
    pass


def nth(call, count, crash, *, after=False):
    made = []

    def wrapped(*args):
        made.append(args)
        if len(made) < count:
            return call(*args)
        if after:
            call(*args)
        return crash()

    return wrapped
