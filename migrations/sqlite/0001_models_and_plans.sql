-- Model configurations by id and revision. The config is kept as text: key order and every digit stay as given.
create table models (
    id                  text not null,
    revision            text not null,
    config              text not null check (json_valid(config)),
    quantization_config text check (quantization_config is null or json_valid(quantization_config)),
    source              text not null,
    hash                text not null,
    updated_at          datetime not null,
    primary key (id, revision)
);

-- Answers by the hash of their content: the JSON as it was sent, deflated (RFC 1951).
create table plans (
    plan_id    text primary key not null,
    answer     blob not null,
    created_at datetime not null
);

create index plans_by_age on plans (created_at);
