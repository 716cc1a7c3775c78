import signal
import threading
import time

import pytest

from zoerefine.base.threads import wait_for_ctrl_c


def test_a_ctrl_c_that_another_thread_receives_ends_the_wait():
    def interrupt():
        time.sleep(0.2)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        wait_for_ctrl_c()
