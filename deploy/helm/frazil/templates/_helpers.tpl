{{- define "frazil.labels" -}}
app.kubernetes.io/name: frazil
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "frazil.name" -}}
{{ printf "frazil-%s" .Release.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The service account of the pods: one of the release, that of the values, or empty for the namespace's own. */}}
{{- define "frazil.account" -}}
{{- default (ternary (include "frazil.name" .) "" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end }}

{{/* The section `http` of the pipeline file, without its short form. */}}
{{- define "frazil.http" -}}
{{- $file := fromYaml .Values.pipeline -}}
{{- if hasKey $file "Error" -}}
{{- fail (printf "pipeline is no YAML: %s" $file.Error) -}}
{{- end -}}
{{- if eq (toString $file.http) "false" -}}
{{- fail "the pod's probes need the HTTP service: leave `http: false` out of the pipeline file" -}}
{{- end -}}
{{- toYaml (ternary $file.http dict (kindIs "map" $file.http)) -}}
{{- end }}

{{/* Whether other machines, as the kubelet is one, reach the HTTP service: "true", or empty on loopback. */}}
{{- define "frazil.reached" -}}
{{- $host := default "127.0.0.1:8787" (fromYaml (include "frazil.http" .)).listen | splitList ":" | initial | join ":" -}}
{{- if not (or (eq $host "localhost") (eq $host "[::1]") (hasPrefix "127." $host)) -}}
true
{{- end -}}
{{- end }}

{{- define "frazil.port" -}}
{{- $http := fromYaml (include "frazil.http" .) -}}
{{- default "127.0.0.1:8787" $http.listen | splitList ":" | last -}}
{{- end }}

{{/* The word of `ha.elect` in the pipeline file; `none` without an election. */}}
{{- define "frazil.elect" -}}
{{- $file := fromYaml .Values.pipeline -}}
{{- ternary (default "kafka" (default dict $file.ha).elect) "none" (hasKey $file "ha") -}}
{{- end }}

{{/* A service on loopback is asked from inside of the pod. */}}
{{- define "frazil.probe" -}}
{{- $tls := (fromYaml (include "frazil.http" .root)).tls -}}
{{- if include "frazil.reached" .root -}}
httpGet: {path: {{ .path }}, port: http, scheme: HTTPS}
{{- else -}}
exec:
  command:
    - python
    - -c
    - import ssl, urllib.request; urllib.request.urlopen("{{ ternary "https" "http" (not (empty $tls)) }}://localhost:{{ include "frazil.port" .root }}{{ .path }}", timeout=5, context=ssl._create_unverified_context())
{{- end }}
timeoutSeconds: 6
{{- end }}
