"""Depth messages with the nearest picture: as a search of all messages would find them."""

from hypothesis import given, settings
from hypothesis import strategies as st

from zoerefine.depth.ros import stamp_pairs
from zoerefine.depth.ros.stamp_pairs import FIELDS_BYTES, CameraTopics, StampedMessage, paired

TOPICS = CameraTopics("/rgb", "/depth", "/info")
STAMPS = st.lists(st.integers(0, 60), max_size=25).map(sorted)
DELAYS = st.lists(st.integers(0, 30), min_size=25, max_size=25)


def message(topic, stamp_ns, recorded_ns=0, size=1):
    return StampedMessage(topic, stamp_ns, recorded_ns, None, bytes(size))


def recorded(stamps, delays):
    """The messages of topics in the order in which they were recorded, each after a delay."""
    found = []
    for topic, values in stamps.items():
        latest = 0
        for stamp, delay in zip(values, delays[topic], strict=False):
            latest = max(latest, stamp + delay)  # the order within a topic is kept
            found.append(message(topic, stamp, latest))
    return sorted(found, key=lambda one: one.recorded_ns)


def counts(messages):
    return {topic: sum(one.topic == topic for one in messages) for topic in TOPICS.names}


@settings(max_examples=200)
@given(st.fixed_dictionaries(dict.fromkeys(TOPICS.names, STAMPS)),
       st.fixed_dictionaries(dict.fromkeys(TOPICS.names, DELAYS)))  # fmt: skip
def test_every_depth_message_gets_the_nearest_picture_whatever_the_delays(stamps, delays):
    messages = recorded(stamps, delays)
    frames = list(paired(messages, TOPICS, counts(messages)))
    assert [frame.depth.stamp_ns for frame in frames] == stamps["/depth"]
    for frame in frames:
        for found, topic in ((frame.picture, "/rgb"), (frame.info, "/info")):
            gaps = [abs(one - frame.depth.stamp_ns) for one in stamps[topic]]
            gap = found and abs(found.stamp_ns - frame.depth.stamp_ns)
            assert gap == min(gaps, default=None)


def test_a_frame_is_known_as_soon_as_its_messages_have_come():
    taken = []

    def messages():
        for stamp in range(0, 1000, 10):
            for topic in TOPICS.names:
                taken.append(stamp)
                yield message(topic, stamp)

    for number, frame in enumerate(paired(messages(), TOPICS, dict.fromkeys(TOPICS.names, 100))):
        assert frame.depth.stamp_ns == taken[-1] == 10 * number


def test_a_topic_that_pauses_holds_back_a_bounded_number_of_bytes(monkeypatch):
    monkeypatch.setattr(stamp_pairs, "MAX_WAITING_BYTES", 10 * (100 + FIELDS_BYTES))
    read = 0

    def messages():
        nonlocal read
        yield message("/rgb", 0, size=100)
        for stamp in range(200):
            read += 1
            yield message("/depth", stamp, size=100)
        yield message("/rgb", 500, size=100)

    behind = []
    topics = CameraTopics("/rgb", "/depth", None)
    for number, frame in enumerate(paired(messages(), topics, {"/rgb": 2, "/depth": 200})):
        assert frame.picture.stamp_ns == 0 and frame.info is None
        behind.append(read - number)
    assert len(behind) == 200 and max(behind) <= 11


def test_pictures_without_depth_are_dropped(monkeypatch):
    monkeypatch.setattr(stamp_pairs, "MAX_WAITING_BYTES", 10 * (100 + FIELDS_BYTES))
    stream = stamp_pairs.NearestStamps(10**6)
    for stamp in range(300):
        stream.add(message("/rgb", stamp, size=100))
    assert len(stream.messages) == 10 and stream.nbytes == stamp_pairs.MAX_WAITING_BYTES
