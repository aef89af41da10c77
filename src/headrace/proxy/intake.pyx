import orjson

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from headrace.core.balancer cimport KIND_EMBED, KIND_GENERATE, RouteRequest
from headrace.core.scan cimport *
from headrace.endpoints import ENDPOINTS, WITHOUT_OUTPUT
from headrace.proxy import multipart
from headrace.proxy cimport own
from headrace.proxy.exchange cimport Exchange
from headrace.proxy.head cimport HEAD_JSON, HEAD_MULTIPART

cdef tuple KINDS = tuple(KIND_EMBED if name in WITHOUT_OUTPUT
                         else KIND_GENERATE for name in ENDPOINTS)
# Streams of these take `stream_options`.
cdef frozenset WITH_STREAM_OPTIONS = frozenset({ENDPOINTS.index("chat_completions"),
                                                ENDPOINTS.index("completions")})
cdef bytes ASK_USAGE = b'"include_usage":true'


cdef int understand(Exchange x) except -1:
    cdef BodyScan scan = None
    if x.r.flags & HEAD_MULTIPART:
        return _take_form(x)
    if PyBytes_GET_SIZE(x.body) or x.endpoint:
        try:
            scan = BodyScan(x.body)
        except ValueError:
            if x.endpoint or x.r.flags & HEAD_JSON:
                return _refuse(x, 400, "invalid_json", "the body is no JSON object", None)
    if scan is None:
        return _take_model(x, None, None) or _fill(x, None)
    if _read_model(x, scan) or _add_usage(x, scan):
        return 1
    return _fill(x, scan)


cdef int recall(Exchange x) except -1:
    cdef BodyScan scan = None
    if not x.r.flags & HEAD_MULTIPART and PyBytes_GET_SIZE(x.body):
        try:
            scan = BodyScan(x.body)
        except ValueError:
            pass
    return _fill(x, scan)


cdef int _read_model(Exchange x, BodyScan scan) except -1:
    cdef scan_field *f = &scan.s.field[<int>SCAN_MODEL]
    cdef bytes name
    if f.kind == JSON_ABSENT or f.kind == JSON_NULL:
        return _take_model(x, None, None)
    if f.kind != JSON_STRING:
        return _refuse(x, 400, "invalid_request", "model is not a string", "model")
    name = scan.decoded(SCAN_MODEL)
    if name is None:
        return _refuse(x, 404, "model_not_found", "no replica serves this model", "model")
    return _take_model(x, name, (f.start, f.end))


cdef int _take_form(Exchange x) except -1:
    boundary = multipart.boundary_of(x.text(x.r.content_type.at, x.r.content_type.len))
    span = None if boundary is None else multipart.find_field(x.body, boundary, b"model")
    name = None if span is None else x.body[span[0]:span[1]].strip()
    return _take_model(x, name, span, form=True) or _fill(x, None)


cdef int _take_model(Exchange x, bytes name, span, bint form=False) except -1:
    """Find the model; an alias is replaced in the body by what it stands for."""
    if name is None:
        x.model = x.plane.only_model
        if x.model is None:
            if not x.plane.models:
                return _refuse(x, 503, "no_replica", "no model is served yet", "model")
            return _refuse(x, 400, "invalid_request", "model is missing, and several are served",
                           "model")
        return 0
    x.model = x.plane.models.get(name)
    if x.model is not None:
        return 0
    if name not in x.plane.aliases:
        return _refuse(x, 404, "model_not_found", "no replica serves this model", "model")
    x.model = x.plane.aliases[name]
    if x.model is None:
        return _refuse(x, 503, "no_replica", "nobody serves the model behind this alias", "model")
    value = x.model.name if form else orjson.dumps(x.model.info.name)
    x.body = x.body[:span[0]] + value + x.body[span[1]:]
    return 0


cdef int _add_usage(Exchange x, BodyScan scan) except -1:
    """Ask for usage on behalf of a client that did not; the event is taken out again
    (Exchange.strips_usage).
    """
    cdef scan_field *options
    cdef scan_field *asked
    # HTTP/1.0 has no chunks: without the usage event a promised length would be wrong.
    if not x.plane.inject_usage or x.endpoint not in WITH_STREAM_OPTIONS or x.r.minor == 0:
        return 0
    if x.body is not scan.body:  # an alias was replaced: everything behind it has moved
        scan = BodyScan(x.body)
    options = &scan.s.field[<int>SCAN_STREAM_OPTIONS]
    asked = &scan.s.field[<int>SCAN_INCLUDE_USAGE]
    if scan.s.field[<int>SCAN_STREAM].kind != JSON_TRUE or asked.kind == JSON_TRUE:
        return 0
    if asked.kind != JSON_ABSENT:
        x.body = x.body[:asked.start] + b"true" + x.body[asked.end:]
    elif options.kind == JSON_OBJECT:
        comma = b"" if x.body[options.start + 1:options.end - 1].strip() == b"" else b","
        x.body = x.body[:options.start + 1] + ASK_USAGE + comma + x.body[options.start + 1:]
    elif options.kind == JSON_ABSENT:
        x.body = (x.body[:scan.s.object_start] + b'"stream_options":{' + ASK_USAGE + b"},"
                  + x.body[scan.s.object_start:])
    else:
        return 0
    x.strips_usage = True
    return 0


cdef int _fill(Exchange x, BodyScan scan) except -1:
    cdef RouteRequest q = x.plane.request
    q.clear()
    q.model = x.model.id
    q.priority = x.r.priority
    if x.r.session.len:
        q.offer_session(0, PyBytes_AS_STRING(x.head) + x.r.session.at, x.r.session.len)
    if scan is not None:
        q.fill(scan, x.model.name, KINDS[x.endpoint])
    else:
        q.kind = KINDS[x.endpoint]
    x.stream = q.stream
    x.max_tokens = q.max_tokens
    return 0


cdef int _refuse(Exchange x, int status, str code, str message, str param) except -1:
    own.reply(x, status, code, message, param, 1 if status == 503 else 0, b"", False)
    return 1
