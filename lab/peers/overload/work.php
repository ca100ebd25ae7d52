<?php
// What /work?cpu=20ms does in Forebay: spins until this process's CPU time has grown by that much.
function used_us()
{
    $used = getrusage();
    return ($used['ru_utime.tv_sec'] + $used['ru_stime.tv_sec']) * 1000000
        + $used['ru_utime.tv_usec'] + $used['ru_stime.tv_usec'];
}

// or does nothing: /work?sleep=20ms
if (preg_match('/^(\d+)ms$/', $_GET['sleep'] ?? '', $parts)) {
    usleep(1000 * (int) $parts[1]);
    header('Content-Length: 0');
    exit;
}
$began_us = used_us();
if (!preg_match('/^(\d+)(us|ms|s)$/', $_GET['cpu'] ?? '0us', $parts)) {
    http_response_code(400);
    exit;
}
$asked_us = (int) $parts[1] * ['us' => 1, 'ms' => 1000, 's' => 1000000][$parts[2]];
$state = 1;
while (used_us() - $began_us < $asked_us) {
    for ($turn = 0; $turn < 100; $turn++) {
        $state = ($state * 1103515245 + 12345) & 0x7fffffff;
    }
}
// and answers with so much: /work?cpu=20ms&out=8KiB
preg_match('/^(\d+)(KiB|B)$/', $_GET['out'] ?? '0B', $parts);
$answer_bytes = (int) ($parts[1] ?? 0) * (($parts[2] ?? 'B') === 'KiB' ? 1024 : 1);
header('Content-Type: text/plain');
header("Content-Length: $answer_bytes");
echo str_repeat('w', $answer_bytes);
