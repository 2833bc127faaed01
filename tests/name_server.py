"""A name server of a test's own: answers over UDP and TCP with what the test says, or fails."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import ip_address
from typing import Self

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

UDP_BYTES = 512
KINDS = {4: dns.rdatatype.A, 6: dns.rdatatype.AAAA}


class NameServer:
    """Answers at 127.0.0.1, in threads of its own; names that it was told nothing of don't
    exist."""

    def __init__(self) -> None:
        self.fails: set[dns.rdatatype.RdataType] = set()
        """The kinds of records for which it says SERVFAIL."""
        self.silent = False
        self.num_asked = 0
        self.num_asked_over_tcp = 0
        self._addresses: dict[str, tuple[str, ...]] = {}
        self._asked = threading.Condition()
        self._udp, self._tcp = _bound()
        self.port = self._udp.getsockname()[1]
        self._threads = [
            threading.Thread(target=serve, daemon=True) for serve in (self._serve, self._serve_tcp)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._udp.sendto(b"", self._udp.getsockname())  # ends the one who waits for a question
        self._tcp.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)
        self._udp.close()
        self._tcp.close()

    def set(self, name: str, addresses: Iterable[str]) -> None:
        """From now on, ``name`` has these addresses; none at all is an answer without records."""
        self._addresses[name] = tuple(addresses)

    def entry(self, name: str, port: int) -> str:
        """The name as an orchestrator is told it, to ask here."""
        return f"dns://127.0.0.1:{self.port}/{name}:{port}"

    def wait_asked(self, times: int, timeout_s: float = 10.0) -> None:
        """Block until it has been asked this many times more."""
        with self._asked:
            until = self.num_asked + times
            assert self._asked.wait_for(lambda: self.num_asked >= until, timeout_s)

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                wire, asker = self._udp.recvfrom(65535)
                if not wire:
                    return
                if (response := self._response(wire)) is not None:
                    self._udp.sendto(_cut(response), asker)

    def _serve_tcp(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._tcp.accept()
                with connection, connection.makefile("rwb") as stream:
                    (length,) = struct.unpack("!H", stream.read(2))
                    self.num_asked_over_tcp += 1
                    if (response := self._response(stream.read(length))) is not None:
                        wire = response.to_wire()
                        stream.write(struct.pack("!H", len(wire)) + wire)

    def _response(self, wire: bytes) -> dns.message.Message | None:
        query = dns.message.from_wire(wire)
        (question,) = query.question
        response = dns.message.make_response(query)
        name = question.name.to_text(omit_final_dot=True)
        known = self._addresses.get(name)
        kind = question.rdtype
        if kind in self.fails:
            response.set_rcode(dns.rcode.SERVFAIL)
        elif known is None:
            response.set_rcode(dns.rcode.NXDOMAIN)
        elif fitting := [each for each in known if KINDS[ip_address(each).version] is kind]:
            response.answer.append(dns.rrset.from_text_list(question.name, 1, "IN", kind, fitting))
        silent = self.silent
        with self._asked:
            self.num_asked += 1
            self._asked.notify_all()
        return None if silent else response


def _cut(response: dns.message.Message) -> bytes:
    """What fits a datagram; too much is cut off, and has to be asked for over TCP."""
    wire = response.to_wire()
    if len(wire) <= UDP_BYTES:
        return wire
    response.answer.clear()
    response.flags |= dns.flags.TC
    return response.to_wire()


def _bound() -> tuple[socket.socket, socket.socket]:
    """A port that is free for both."""
    while True:
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        udp.bind(("127.0.0.1", 0))
        try:
            tcp.bind(udp.getsockname())
        except OSError:
            udp.close()
            tcp.close()
            continue
        tcp.listen()
        return udp, tcp
