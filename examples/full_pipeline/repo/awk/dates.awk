# Writes dates such as 05/05/2024 as 2024-05-05. Variables: order (set by whoever calls).
{
    split($1, part, "/")
    day = part[index(order, "d")]
    month = part[index(order, "m")]
    print part[3] "-" month "-" day
}
