-- What engines printed at start-up beside what was predicted: recovered settings and figures, never the log itself.
-- An empty text says that the log (or the question) does not tell; `record` is the whole answer as JSON.
create table observations (
    id                  text collate "C" primary key,
    engine              text collate "C" not null,
    version             text collate "C" not null,
    gpu                 text collate "C" not null,
    model               text collate "C" not null,
    layout              text not null,
    outcome             text not null,
    outcome_agrees      boolean,
    kv_tokens_observed  double precision,
    kv_tokens_predicted double precision,
    ratios              text not null check (ratios::json is not null),
    record              text not null check (record::json is not null),
    observed_at         timestamptz not null
);

create index observations_by_age on observations (observed_at, id);
