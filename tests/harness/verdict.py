"""What must hold of a set of calls, judged from outside: from what clients were told, the partner saw, and the audit has.

No check needs a clock or can be wrong for timing: each compares things of which one was over before the other began.
`crashed`: the gateway was killed or lost its disk meanwhile; then a call may also be in doubt. `earlier`: tokens that
calls of earlier crashes' cycles carried.
"""

CRASH = "gateway-crash"


class Verdict:
    def __init__(self, route, calls, records, crashed=False, earlier=()):
        self.effects = route["ledger"] == "effects"
        self.rule = route["on_supersede"]
        self.crashed = crashed
        self.earlier = earlier  # (key, token) of calls before these
        self.calls = calls
        self.found = []
        self.counts = {}
        self.raised = {}  # (key, token) -> records of a raise by the lock service
        self._join(records)
        self.by_token = {}
        for call in calls.values():
            if call.sent:
                self.by_token.setdefault((call.key.name, call.token), []).append(call)

    def say(self, call, text):
        self.found.append(f"{text}: {call}")

    def count(self, name):
        self.counts[name] = self.counts.get(name, 0) + 1

    def judge(self):
        for call in self.calls.values():
            if call.trouble and not self.crashed:
                self.say(call, call.trouble)
            self._arrival(call)
            if call.told:
                self._told(call)
            elif call.sent:
                self._silent(call)
            elif call.arrivals or call.records:
                self.say(call, "a request that never was whole left a trace")
        return self.found

    # -- audit

    def _join(self, records):
        last, effects = 0, set()
        for record in records:
            if int(record["id"]) <= last:
                self.found.append(f"audit ids do not rise: {record}")
            last = int(record["id"])
            if record["kind"] == "raised":
                self._raise(record)
                continue
            path = record.get("path", "")
            call = self.calls.get(int(path[3:])) if path.startswith("/r/") else None
            if call is None:
                self.found.append(f"a record of no request: {record}")
                continue
            call.records.append(record)
            if (record["key"].encode(), int(record["token"])) != (call.key.name, call.token):
                self.say(call, f"its record has other key or token: {record}")
            if "effect_id" in record:
                if record["effect_id"] in effects:
                    self.say(call, "an effect was recorded twice")
                effects.add(record["effect_id"])

    def _raise(self, record):
        key = (record["key"].encode(), int(record["token"]))
        self.raised[key] = self.raised.get(key, 0) + 1

    def raises(self, keys):
        """One record for each raise by the lock service, but none where a call had brought the same token before."""
        found = []
        by_name = {key.name: key for key in keys}
        for (name, token), count in self.raised.items():
            if count != 1 or token not in by_name[name].announced:
                found.append(f"{count} records of a raise of {name} to {token}, asked for: {token in by_name[name].announced}")
        for key in keys:
            for token in key.confirmed:
                if (key.name, token) not in self.raised and not self.by_token.get((key.name, token)):
                    found.append(f"no record of the raise of {key.name} to {token}")
        return found

    def _record(self, call, kind, reasons):
        """The one record of it, if it is as it should be."""
        if len(call.records) != 1:
            self.say(call, f"{len(call.records)} audit records instead of one")
            return None
        record = call.records[0]
        in_doubt = self.crashed and record["kind"] == "unknown" and record.get("reason") == CRASH
        if in_doubt and kind != "dropped":
            self.count("in doubt")
            return None
        if record["kind"] != kind or record.get("reason") not in reasons:
            self.say(call, f"the record is not {kind} {reasons}")
            return None
        return record

    # -- the partner

    def _arrival(self, call):
        if call.arrivals > 1:
            self.say(call, f"sent {call.arrivals} times")
        if not call.arrivals:
            return
        self.count("arrived")
        if call.gave_up and not self.crashed and not self._cut(call):
            self.say(call, "the gateway closed the partner's connection before an answer")
        if call.token < call.known:
            self.say(call, f"stale: sent although {call.known} was known to be accepted before the request was made")
        for token, text in ((call.late, "came"), (call.outlived, "was still at the partner")):
            if token and not self._cut(call):
                self.say(call, f"{text} after the gateway had said that no call below {token} is in flight any more")
        if self.rule == "overlap":
            return
        if call.above is not None and not self._cut(call):
            self.say(call, f"came after the higher token {call.above.token}, call {call.above.id}")
        if call.overlapped is not None and not self._cut(call.overlapped):
            self.say(call, f"came while the partner still had {call.overlapped}")

    def _cut(self, call):
        """The gateway may end a call by itself: then it is over for the gateway before it is for the partner."""
        reasons = [call.reason] + [record.get("reason") for record in call.records]
        if "aborted" in reasons or "upstream-timeout" in reasons:
            return True
        if self.rule != "abort" or not self._accepted_above(call, 1 << 62):
            return False
        if any("newer token" in record.get("note", "") for record in call.records):
            return True  # its head was there: that is sent, and cut short
        if call.told:
            return not call.complete
        return self.crashed or not self.effects  # nobody can know

    # -- what the client was told

    def _told(self, call):
        check = {"sent": self._sent, "unknown": self._unknown, "not-sent": self._not_sent}.get(call.effect)
        if check is None:
            self.say(call, f"Fencegate-Effect is {call.effect}, body {call.body[:200]!r}")
            return
        self.count(call.effect if call.effect == "sent" else call.reason)
        check(call)

    def _sent(self, call):
        if call.arrivals == 0:
            self.say(call, "told sent, but the partner never saw it")
        elif call.answered != call.status:
            self.say(call, f"told {call.status}, but the partner answered {call.answered}")
        short = call.script[0] == "short"
        wanted = b'{"id":%d}' % call.id
        if call.complete and (short or call.body != wanted):
            self.say(call, f"told an answer that the partner did not give: {call.body[:200]!r}")
        if not call.complete and call.full and not self.crashed and not self._cut(call):
            self.say(call, "the answer was whole and is told cut short")
        if self.effects:
            record = self._record(call, "sent", (None,))
            if record and record.get("upstream_status") != call.answered:
                self.say(call, "the record has another upstream_status")
            self._effect_id(call)
        elif call.records:
            self.say(call, "with ledger drops only drops have a record")

    def _unknown(self, call):
        if call.reason == "aborted":
            if self.rule != "abort" or not self._accepted_above(call, call.told):
                self.say(call, "aborted without a newer token")
        elif call.reason != "upstream-failed":
            self.say(call, "unknown for no reason that occurs here")
        elif call.full:
            self.say(call, "told unknown although the partner answered in full")
        if self.effects:
            self._record(call, "unknown", (call.reason,))
            self._effect_id(call)
        elif call.records:
            self.say(call, "with ledger drops only drops have a record")

    def _not_sent(self, call):
        if call.arrivals or call.partial:
            self.say(call, "told not-sent, but the partner saw it")
        if self.crashed and call.reason in ("store-unavailable", "shutting-down") and call.status == 503:
            if call.records and not (len(call.records) == 1 and self._may_stand(call, call.records[0])):
                self.say(call, "refused, yet recorded")
            return
        if call.reason not in ("stale-token", "superseded"):
            self.say(call, f"not sent for no reason that occurs here: {call.body[:300]!r}")
            return
        if call.status != 412:
            self.say(call, "a drop that is no 412")
        self._justified(call, call.highest, call.told)
        record = self._record(call, "dropped", (call.reason,))
        if record and (record["id"] != call.audit_id or int(record["highest"]) != call.highest):
            self.say(call, "the record has another id or fence than was told")

    @staticmethod
    def _may_stand(call, record):
        """Of a call that was refused with the disk gone: the batch under way may have reached it all the same."""
        return record.get("reason") == CRASH or (record["kind"] == "dropped" and call.reason == "store-unavailable")

    def _effect_id(self, call):
        if call.records and call.effect_id != call.records[0].get("effect_id"):
            self.say(call, "Fencegate-Effect-Id is not the record's")

    def _justified(self, call, fence, before):
        if fence <= call.token:
            self.say(call, "dropped by a fence that is not above it")
        elif not self._accepted(call.key, fence, before):
            self.say(call, f"dropped by a fence {fence} that no accepted request had raised")

    def _accepted(self, key, token, before):
        """Can some call have raised the key's fence to this token before that moment?"""
        if key.announced.get(token, before) < before:
            return True
        return (key.name, token) in self.earlier or any(
            other.sent < before and other.reason != "stale-token" and
            not any(record.get("reason") == "stale-token" for record in other.records)
            for other in self.by_token.get((key.name, token), ()))

    def _accepted_above(self, call, before):
        return any(key == call.key.name and token > call.token and self._accepted(call.key, token, before)
                   for key, token in self.by_token)

    # -- a client that left, or was cut off by the crash

    def _silent(self, call):
        self.count("left")
        if len(call.records) > 1:
            self.say(call, f"{len(call.records)} audit records instead of one")
        if not call.records:
            if call.arrivals and self.effects:
                self.say(call, "sent, and nothing of it is on record")
            return
        record = call.records[0]
        self.count("left, " + record["kind"])
        kind, reason = record["kind"], record.get("reason")
        if kind == "dropped" and reason in ("stale-token", "superseded"):
            self._justified(call, int(record["highest"]), 1 << 62)
            if call.arrivals or call.partial:
                self.say(call, "recorded as dropped, but the partner saw it")
        elif not self.effects:
            self.say(call, "with ledger drops only drops have a record")
        elif kind == "sent":
            if not call.arrivals or record.get("upstream_status") != call.answered:
                self.say(call, "recorded as sent, but the partner's log says otherwise")
        elif kind == "unknown" and reason == "upstream-failed":
            if call.full:
                self.say(call, "recorded as unknown although the partner answered in full")
        elif kind == "unknown" and reason == "aborted":
            if self.rule != "abort" or not self._accepted_above(call, 1 << 62):
                self.say(call, "recorded as aborted without a newer token")
        elif self.crashed and kind == "not-sent" and reason == CRASH:
            if call.arrivals or call.partial:
                self.say(call, "recorded as waiting in the crash, but the partner saw it")
        elif not (self.crashed and kind == "unknown" and reason == CRASH):
            self.say(call, "recorded with a kind or reason that does not occur here")
